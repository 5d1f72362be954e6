//! Stateful processing (§III-C, IV-B2): the side that has few connections, and keeps the state of
//! both their ends.
//!
//! It knows every work request that its applications have posted, and every one that the stateless
//! side Z has told it of. It pairs SENDs with RECVs, and moves the data of all of them: it pushes
//! to Z's memory by RDs and pulls from it by GDs, and sends again what is not answered. When the
//! data of a work request of Z is there, it tells Z so by a CQEP.
//!
//! | module | what it does |
//! |---|---|
//! | this | the tables; connections begin |
//! | `receive` | opens frames, and takes what Z tells and answers |
//! | `told` | takes what Z tells about the connection itself |
//! | `take` | takes work requests, of applications and of Z |
//! | `transfer` | begins them in order, and lands what is pulled |
//! | `complete` | ends those whose data is there |
//! | `roles` | changes roles: gives a connection to Z, or has taken it over |
//! | `end` | ends connections; what is due by time |
//! | `write`, `payload` | writes frames, and what they carry |
//! | `chunks` | which chunk goes next |
//! | `rc`, `respond`, `reply` | connections both of whose sides are stateful |
//! | `paths` | congestion control: what may be under way to each peer, and whose turn it is |
//! | `connection`, `responder`, `work`, `under_way`, `registry`, `clock_bounds`, `shares` | what is kept |
//! | `slab`, `row_index` | tables of fixed size |
//!
//! Order is that of reliable connections: SEND k of one side goes to RECV k of the other; SENDs may
//! be under way together, a WRITE or READ is alone. Completions may come in any order, and the
//! library gives them in that of the queue.
//!
//! Invariants: each work request is in one list, or the partner of one that is. Nothing is sent
//! that no key is known for (§III-D1). A work request that fails is reported only when every frame
//! of its connection is dead by Z's clock, so nothing of it can have effect any more (S2 of
//! `docs/STAR-WIRE.md`); any failure ends the connection. Nothing is allocated after
//! [`Stateful::new`].

mod chunks;
mod clock_bounds;
mod complete;
mod connection;
mod end;
mod paths;
mod payload;
mod rc;
mod receive;
mod registry;
mod reply;
mod respond;
mod responder;
mod roles;
mod row_index;
mod shares;
mod slab;
mod take;
mod told;
mod transfer;
mod under_way;
mod work;
mod write;

use core::time::Duration;

use rma_core::{
    backend::BATCH,
    index_list::{IndexList, Links},
    time::Instant,
};

use crate::{
    clock::ZTime,
    config::StarConfig,
    counters::StarEvent,
    handover::Handover,
    keys::FrameKey,
    names::{ConnectionName, Era, Nonce, PdId, Qpn, Side},
    portal::Report,
    sealer::Batch,
    tables::Tables,
    verbs::WcStatus,
    wire::FRAME_LEN_MIN,
};
use connection::{Beginning, Connection, Connections, Phase};
use paths::{Paths, WAYS};
use registry::Registry;
use responder::Replies;
use shares::Shares;
use slab::Slab;
use under_way::UnderWay;
use work::Work;

/// Both sides of a connection, each at its own place in what there is for both.
const SIDES: [Side; 2] = [Side::Stateful, Side::Stateless];

/// The engine's part of stateful processing.
#[derive(Debug)]
pub(crate) struct Stateful {
    batch: Batch,
    connections: Connections,
    works: Slab<Work>,
    /// Work requests are in the lists of their connection, or in that of a CQEP under way.
    work_links: Links,
    /// The shares of the tables.
    shares: Shares,
    frames: UnderWay,
    paths: Paths,
    /// Frames under way are in one of two lists of their connection.
    frame_links: Links,
    registry: Registry,
    /// The answers to peers that are stateful as well.
    replies: Replies,
    /// Whether the registry is asked for what is sent: see [`Stateful::forgo_whitelist`].
    has_whitelist: bool,
    /// Connections that have frames to send that no window holds back.
    ready: IndexList,
    ready_links: Links,
    /// Whether chunks are asked first for the next frame to send.
    chunks_first: bool,
    /// Those that have work requests, first those that were quiet for longest.
    watched: IndexList,
    watched_links: Links,
    /// By side, those whose next message waits for a RECV, first those that have waited longest.
    blocked: [IndexList; 2],
    blocked_links: [Links; 2],
    /// Those that wait until all their frames are dead, first those that began first.
    dying: IndexList,
    dying_links: Links,
    /// W, and how long it takes until a frame is dead for certain.
    dead_after: Duration,
    probe_interval: Duration,
    rnr_timeout: Duration,
}

impl Stateful {
    pub(crate) fn new(config: &StarConfig) -> Self {
        let settings = config.settings();
        let connections = settings.connections as usize;
        let works = settings.work_requests as usize;
        let frames = settings.frames_under_way as usize;
        Self {
            batch: Batch::new(),
            connections: Connections::new(connections, config.place().secret),
            works: Slab::new(works),
            work_links: Links::new(works),
            shares: Shares::new(
                works as u16,
                frames as u16,
                settings.connections,
                config.portals(),
                config.place().secret.hash(4),
            ),
            frames: UnderWay::new(frames, settings, config.place().secret),
            paths: Paths::new(config.cc, connections),
            frame_links: Links::new(frames),
            registry: Registry::new(connections),
            replies: Replies::new(settings.answers as usize),
            has_whitelist: true,
            ready: IndexList::new(),
            ready_links: Links::new(connections),
            chunks_first: false,
            watched: IndexList::new(),
            watched_links: Links::new(connections),
            blocked: Default::default(),
            blocked_links: SIDES.map(|_| Links::new(connections)),
            dying: IndexList::new(),
            dying_links: Links::new(connections),
            dead_after: settings.valid + settings.valid / 16,
            probe_interval: settings.probe_interval,
            rnr_timeout: settings.rnr_timeout,
        }
    }

    /// Bytes that the tables take, whatever the connections do.
    pub(crate) fn memory(&self) -> usize {
        let of_connection =
            Connections::ENTRY_LEN + Paths::ENTRY_LEN + Shares::ENTRY_LEN + 5 * Links::ENTRY_LEN;
        let of_work = Slab::<Work>::ENTRY_LEN + Links::ENTRY_LEN;
        let of_frame = UnderWay::ENTRY_LEN + Links::ENTRY_LEN;
        self.connections.capacity() * of_connection
            + self.works.capacity() * of_work
            + self.frames.capacity() * of_frame
            + self.registry.capacity() * Registry::ENTRY_LEN
            + self.replies.capacity() * Replies::ENTRY_LEN
            + self.shares.memory()
    }

    /// From now on no rule is looked for. What has none is sealed under a key that no stateless
    /// side knows: only one that authenticates nothing takes it.
    pub(crate) const fn forgo_whitelist(&mut self) {
        self.has_whitelist = false;
    }

    fn find(&self, portal: u16, qp: u32) -> Option<u16> {
        self.connections.find(Qpn::new(portal.into(), qp)?)
    }

    /// Whether this host is the stateful side of this QP's connection.
    pub(crate) fn is_stateful(&self, portal: u16, qp: u32) -> bool {
        self.find(portal, qp).is_some()
    }

    /// How many connections there are.
    pub(crate) fn len(&self) -> usize {
        self.connections.len()
    }

    /// How many work requests are known, and how many frames are under way.
    #[cfg(test)]
    pub(crate) fn in_use(&self) -> (usize, usize) {
        let connections =
            (0..self.connections.capacity() as u16).map(|at| self.connections.get(at));
        let to_come: usize = connections.flatten().map(|it| usize::from(it.rows_to_come)).sum();
        assert_eq!(self.shares.in_use(), self.works.len() + to_come, "each row is somebody's");
        (self.works.len(), self.frames.len())
    }

    /// How often frames under way were looked at since this was asked last.
    #[cfg(test)]
    pub(crate) fn looks(&self) -> usize {
        self.frames.looks()
    }

    //= star#III-C1-state
    /// A connection begins, of which the application has written the record.
    pub(crate) fn open(&mut self, host: &mut Tables<'_>, now: Instant, portal: u16, qp: u32) {
        let status = match self.beginning(host, now, portal, qp, None) {
            Err(status) => status,
            Ok(beginning) => match self.add(&beginning) {
                Some(_) => WcStatus::Success,
                None => WcStatus::GeneralErr,
            },
        };
        report_opened(host, portal, now, qp, status, [0; 16]);
    }

    fn beginning(
        &mut self,
        host: &Tables<'_>,
        now: Instant,
        portal: u16,
        qp: u32,
        handover: Option<&Handover>,
    ) -> Result<Beginning, WcStatus> {
        let nonsense = WcStatus::LocQpOpErr;
        let port = host.portals.get(portal.into()).ok_or(nonsense)?;
        let record = port.memory().record(qp).ok_or(nonsense)?;
        let qpn_f = Tables::qpn(portal, qp).ok_or(nonsense)?;
        let own = host.own_address(record.peer).ok_or(nonsense)?;
        let local_pd = PdId(record.local_pd);
        host.pd_of_portal(local_pd, portal.into()).ok_or(WcStatus::LocProtErr)?;
        let receive = &host.config.place().receive_len_max;
        let received = if own.is_ipv4() { receive.ipv4 } else { receive.ipv6 };
        let told_len_max = handover.map_or(u16::MAX, |it| it.packet_len_max);
        let packet_len_max = record.packet_len_max.min(told_len_max);
        let frame_len_max = received.min(packet_len_max.into());
        if frame_len_max < FRAME_LEN_MIN || self.connections.find(qpn_f).is_some() {
            return Err(nonsense);
        }
        if !port.may_open_stateful() {
            return Err(WcStatus::GeneralErr);
        }
        let full = WcStatus::GeneralErr;
        let has_room = self.connections.has_room();
        let paths = has_room.then(|| self.paths.hold(record.peer)).flatten().ok_or(full)?;
        // Of Z: as the application was told at the set-up, or as Z has told in band.
        let (pd, nonce, era) = handover
            .map_or((PdId(record.pd), Nonce(record.nonce), Era(record.era)), |it| {
                (it.pd, it.nonce, it.era)
            });
        let name = ConnectionName { pd, qpn_z: Qpn::from_bits(record.peer_qpn), qpn_f, nonce, era };
        let key = handover.map_or(FrameKey::from_bytes(record.key), |it| it.key);
        let z_clock = handover.map_or(record.z_clock, |it| it.clock);
        let valid_micros = handover.map_or(u64::MAX, |it| it.valid_micros.into());
        Ok(Beginning {
            portal,
            qp,
            name,
            local_pd,
            own,
            peer: record.peer,
            paths,
            key,
            packet_len_max,
            frame_len_max,
            valid_micros: host.config.valid_micros().min(valid_micros),
            // Whatever the application says, no clock gets to its end.
            z_clock: ZTime(z_clock.min(u64::MAX / 2)),
            now,
        })
    }

    /// Adds a connection. `None` if there is no room.
    fn add(&mut self, beginning: &Beginning) -> Option<u16> {
        if !self.connections.has_room() {
            return None;
        }
        let of_z = self.shares.hold(beginning.peer)?;
        self.connections.add(Connection::new(beginning, of_z))
    }

    /// About how many frames [`Stateful::write_next`] has: 0 only if it has none that it can send.
    pub(crate) fn frames_waiting(&self) -> usize {
        // As in most turns.
        if !self.has_ready() {
            return 0;
        }
        let ready = self.ready.iter(&self.ready_links);
        if !self.frames.has_room() {
            return ready.map(|at| self.placed_of(at)).sum();
        }
        if self.shares.may_hold_back() {
            // Each is looked at: it may be that none may send.
            let frames = ready
                .map(|at| if self.may_begin(at) { self.frames_of(at) } else { self.placed_of(at) });
            let chunks = self.paths.ready_connections().filter(|&at| self.may_begin(at));
            return frames.sum::<usize>() + chunks.count();
        }
        let first = ready.take(BATCH).map(|at| self.frames_of(at).min(BATCH));
        let chunks = self.paths.ready().take(BATCH).map(|(path, first, connections)| {
            self.chunks_of(self.connections.at(first), path).min(BATCH).max(connections)
        });
        first.sum::<usize>().max(self.ready.len()) + chunks.sum::<usize>()
    }

    /// Whether that is not 0.
    pub(crate) fn has_frames(&self) -> bool {
        if !self.frames.has_room() || self.shares.may_hold_back() {
            return self.frames_waiting() > 0;
        }
        self.has_ready()
    }

    /// Whether a connection or a path is in turn to send.
    fn has_ready(&self) -> bool {
        !self.ready.is_empty() || self.paths.ready().next().is_some()
    }

    /// Whether another frame of a connection may be under way.
    #[inline]
    fn may_begin(&self, at: u16) -> bool {
        self.frames.has_room() && self.shares.may_send(&self.connections.at(at).of_z)
    }

    /// Puts a connection into the list of those that have frames to send, and into those of the
    /// paths that it has chunks for, if it has.
    fn relist(&mut self, at: u16) {
        let has_frames = self.frames_of(at) > 0;
        let may_send = self.may_send(at);
        let chunks = WAYS.map(|way| may_send && self.has_chunk(at, way));
        let connection = self.connections.at_mut(at);
        if has_frames && !core::mem::replace(&mut connection.is_listed, true) {
            self.ready.push_back(&mut self.ready_links, at);
        }
        for (way, has_chunk) in WAYS.into_iter().zip(chunks) {
            if has_chunk && !core::mem::replace(&mut connection.is_on_path[way as usize], true) {
                self.paths.join(connection.paths[way as usize], way, at);
            }
        }
    }

    /// Something was heard of a connection, or it is asked, or its first work request has come: it
    /// is the last of those that may be quiet for too long.
    fn watch(&mut self, at: u16, now: Instant) {
        let connection = self.connections.at_mut(at);
        connection.quiet_since = now;
        let watches = connection.works > 0 && connection.phase == Phase::Open;
        if core::mem::replace(&mut connection.is_watched, watches) {
            self.watched.remove(&mut self.watched_links, at);
        }
        if watches {
            self.watched.push_back(&mut self.watched_links, at);
        }
    }

    /// Notes since when the next message of a side waits for a RECV, or that it does not.
    fn set_blocked(&mut self, at: u16, side: Side, since: Option<Instant>) {
        let connection = self.connections.at_mut(at);
        let before = &mut connection.blocked_since[side as usize];
        let (list, links) =
            (&mut self.blocked[side as usize], &mut self.blocked_links[side as usize]);
        match (*before, since) {
            (None, Some(_)) => list.push_back(links, at),
            (Some(_), None) => list.remove(links, at),
            _ => return,
        }
        *before = since;
    }
}

/// Reports how the beginning of a connection has ended, and counts it.
fn report_opened(
    host: &mut Tables<'_>,
    portal: u16,
    now: Instant,
    qp: u32,
    status: WcStatus,
    key: [u8; 16],
) {
    let is_open = status == WcStatus::Success;
    match host.portals.get_mut(portal.into()) {
        Some(port) if is_open => port.stateful_opened(),
        _ => host.counters.count(StarEvent::OpenRefused),
    }
    report(host, portal, &host.opened(now, qp, status, key));
}

/// Reports to the application of a portal.
fn report(host: &mut Tables<'_>, portal: u16, report: &Report) {
    if !host.portals.report(portal.into(), report) {
        host.counters.count(StarEvent::ReportLost);
    }
}
