//! Connections of which this host is the stateful side (§II-B: all their state, of both ends).

use rma_core::{
    addr::HostAddr, cc::RemoteWindowId, fair_queue::BucketSecret, index_list::IndexList,
    time::Instant,
};

use super::{
    clock_bounds::ClockBounds, responder::Responder, row_index::RowIndex, shares::OfConnection,
    slab::Slab,
};
use crate::{
    clock::ZTime,
    keys::FrameKey,
    names::{ConnectionName, Era, MrId, PdId, Qpn, Sequence, Side},
};

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Work goes on.
    Open,
    /// It has failed or is closed, and its work requests are reported when every frame of it is
    /// dead.
    Dying,
    /// All are reported.
    Over,
}

/// How far a change of roles is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Roles {
    /// None is under way.
    Stay,
    /// Z is asked whether it agrees. Work goes on.
    Asks(Attempt),
    /// Z agrees. Nothing begins, and what has begun is finished.
    Drains(Attempt),
    /// All is handed over, and it is not known what became of that.
    InDoubt(Attempt),
    /// This host has taken the connection over, and Z has not acknowledged that.
    Commits {
        /// Whether the COMMIT is under way.
        is_sent: bool,
    },
}

/// One attempt to change roles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attempt {
    /// No other had it, and the era that it leads to has it.
    pub(super) number: Era,
    pub(super) is_automatic: bool,
    /// The application of this host has asked for it, and is told if it comes to nothing.
    pub(super) is_own: bool,
    /// Whether the SWITCH is under way.
    pub(super) is_sent: bool,
}

impl Roles {
    /// The attempt that is under way, as long as this host gives.
    pub(super) const fn attempt(self) -> Option<Attempt> {
        match self {
            Self::Asks(attempt) | Self::Drains(attempt) | Self::InDoubt(attempt) => Some(attempt),
            Self::Stay | Self::Commits { .. } => None,
        }
    }

    /// Whether work may begin.
    pub(super) const fn may_begin(self) -> bool {
        matches!(self, Self::Stay | Self::Asks(_))
    }
}

/// One connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) portal: u16,
    pub(super) qp: u32,
    pub(super) name: ConnectionName,
    /// The protection domain of the QP here.
    pub(super) local_pd: PdId,
    pub(super) own: HostAddr,
    pub(super) peer: HostAddr,
    /// K_c, which the application was given; in RC, the key of this host's half.
    pub(super) key: FrameKey,
    /// The responder, if the peer is stateful as well (RC): its place of Z is in name only.
    pub(super) rc: Option<Responder>,
    /// The longest packet that goes to Z, in octets, and the longest frame.
    pub(super) packet_len_max: u16,
    pub(super) frame_len_max: usize,
    /// W, in microseconds: this host's, or Z's if that is shorter.
    pub(super) valid_micros: u64,
    pub(super) clock: ClockBounds,
    pub(super) phase: Phase,
    pub(super) roles: Roles,
    /// The highest number of a change of roles that was tried.
    pub(super) tried: Era,
    /// The counter of Z's frame that has asked for one last.
    pub(super) wished: Option<u64>,
    /// The application waits for the end.
    pub(super) is_closing: bool,
    /// The peer must be told that it has ended.
    pub(super) close_is_due: bool,
    /// The peer has told that it has ended.
    pub(super) is_closed_there: bool,
    /// Nothing new begins: a completion that says of a failure is to reach Z first.
    pub(super) is_halted: bool,
    /// When the last frame that was sent is dead.
    pub(super) last_expiry: ZTime,
    /// When the connection has died for certain.
    pub(super) dead_at: Instant,
    /// By side, its work requests.
    pub(super) queues: [Queues; 2],
    /// The next places of this host's queues, sends and receives.
    pub(super) posted: [Sequence; 2],
    /// The place below which Z's sends were taken. In RC, below what place RECVs were posted here.
    pub(super) taken_send: Sequence,
    pub(super) taken_recv: Sequence,
    /// Work requests of all queues, and what those of Z among them have of the table.
    pub(super) works: u32,
    pub(super) of_z: OfConnection,
    /// Rows that its application has for what it posts anew, as this host has taken the connection
    /// over.
    pub(super) rows_to_come: u16,
    /// Those of Z that are done, whose CQEs must be sent.
    pub(super) done: IndexList,
    /// Chunks under way, and frames under way that an EA answers.
    pub(super) chunks: IndexList,
    pub(super) events: IndexList,
    /// Frames to send again.
    pub(super) again: IndexList,
    /// By way, the paths that its chunks take, and whether it is in their lists.
    pub(super) paths: [RemoteWindowId; 2],
    pub(super) is_on_path: [bool; 2],
    /// When an RD was last sent that shares its answer with others.
    pub(super) shared_at: Option<Instant>,
    /// How many EAs must be sent.
    pub(super) eas_due: u8,
    /// The last STATE of Z, and how many of its parts were taken.
    pub(super) state: (u8, u16),
    pub(super) is_ready: bool,
    /// Z must be asked for its initial state.
    pub(super) greeting_is_due: bool,
    /// Rules that are known.
    pub(super) rules: IndexList,
    /// The rule that is needed and not known, and the number of the last question.
    pub(super) wanted: Option<MrId>,
    pub(super) asks: u8,
    pub(super) ask_is_under_way: bool,
    /// Z must be asked whether it is there; whether it is being asked.
    pub(super) probe_is_due: bool,
    pub(super) probe_is_under_way: bool,
    pub(super) quiet_since: Instant,
    /// By side, since when its next message waits for a RECV.
    pub(super) blocked_since: [Option<Instant>; 2],
    /// Whether it is in the list of those that have frames to send, and of those that may be
    /// probed.
    pub(super) is_listed: bool,
    pub(super) is_watched: bool,
    /// The side whose transfers are asked first for the next chunk.
    pub(super) turn: Side,
}

/// The work requests of one side.
#[derive(Debug, Default)]
pub(super) struct Queues {
    /// SENDs, WRITEs and READs that have not begun.
    pub(super) sends: IndexList,
    /// Those that have chunks to send.
    pub(super) moving: IndexList,
    /// Those that wait for answers, or for word that the connection is there.
    pub(super) answering: IndexList,
    /// RECVs that have no message yet.
    pub(super) recvs: IndexList,
}

/// The facts that a connection begins with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Beginning {
    pub(super) portal: u16,
    pub(super) qp: u32,
    pub(super) name: ConnectionName,
    pub(super) local_pd: PdId,
    pub(super) own: HostAddr,
    pub(super) peer: HostAddr,
    pub(super) paths: [RemoteWindowId; 2],
    pub(super) key: FrameKey,
    pub(super) packet_len_max: u16,
    pub(super) frame_len_max: usize,
    pub(super) valid_micros: u64,
    pub(super) z_clock: ZTime,
    pub(super) now: Instant,
}

impl Connection {
    pub(super) fn new(beginning: &Beginning, of_z: OfConnection) -> Self {
        let Beginning { portal, qp, name, local_pd, own, peer, paths, key, .. } = *beginning;
        let Beginning { packet_len_max, frame_len_max, valid_micros, z_clock, now, .. } =
            *beginning;
        Self {
            portal,
            qp,
            name,
            local_pd,
            own,
            peer,
            key,
            rc: None,
            packet_len_max,
            frame_len_max,
            valid_micros,
            clock: ClockBounds::new(z_clock),
            phase: Phase::Open,
            roles: Roles::Stay,
            tried: name.era,
            wished: None,
            is_closing: false,
            close_is_due: false,
            is_closed_there: false,
            is_halted: false,
            last_expiry: ZTime(0),
            dead_at: now,
            queues: Default::default(),
            posted: [Sequence(0); 2],
            taken_send: Sequence(0),
            taken_recv: Sequence(0),
            works: 0,
            of_z,
            rows_to_come: 0,
            done: IndexList::new(),
            chunks: IndexList::new(),
            events: IndexList::new(),
            again: IndexList::new(),
            paths,
            is_on_path: [false; 2],
            shared_at: None,
            eas_due: 0,
            state: (0, 0),
            is_ready: false,
            greeting_is_due: false,
            rules: IndexList::new(),
            wanted: None,
            asks: 0,
            ask_is_under_way: false,
            probe_is_due: false,
            probe_is_under_way: false,
            quiet_since: now,
            blocked_since: [None; 2],
            is_listed: false,
            is_watched: false,
            turn: Side::Stateful,
        }
    }

    /// Whether a rule is needed, and Z must be asked for it.
    pub(super) const fn wants_rule(&self) -> bool {
        self.wanted.is_some() && !self.ask_is_under_way && self.roles.may_begin()
    }

    /// Whether nothing is under way: each work request is complete at both sides, or has not begun.
    pub(super) fn is_drained(&self) -> bool {
        let rests = |queues: &Queues| queues.moving.is_empty() && queues.answering.is_empty();
        self.queues.iter().all(rests)
            && self.done.is_empty()
            && self.chunks.is_empty()
            && self.events.is_empty()
    }

    /// Whether every frame that was ever sent is dead by Z's clock.
    pub(super) fn is_dead(&self, now: Instant) -> bool {
        self.clock.lower(now).is_none_or(|lower| lower > self.last_expiry)
    }
}

/// All connections, found by their QPNs.
#[derive(Debug)]
pub(super) struct Connections {
    rows: Slab<Connection>,
    by_qpn: RowIndex,
}

impl Connections {
    /// Bytes that each connection takes.
    pub(super) const ENTRY_LEN: usize = Slab::<Connection>::ENTRY_LEN + RowIndex::ENTRY_LEN;

    /// Room for so many.
    pub(super) fn new(capacity: usize, secret: BucketSecret) -> Self {
        Self { rows: Slab::new(capacity), by_qpn: RowIndex::new(capacity, secret.hash(3)) }
    }

    pub(super) fn capacity(&self) -> usize {
        self.rows.capacity()
    }

    pub(super) fn has_room(&self) -> bool {
        self.rows.has_room()
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// The connection of a row, if it is in use.
    pub(super) fn get(&self, at: u16) -> Option<&Connection> {
        self.rows.get(at)
    }

    /// The row of a QPN of this host.
    pub(super) fn find(&self, qpn: Qpn) -> Option<u16> {
        let mut rows = self.by_qpn.rows(qpn.to_bits().into());
        rows.find(|&at| self.rows[at].name.qpn_f == qpn)
    }

    /// Adds one whose QPN has no row. `None` if there is no room.
    pub(super) fn add(&mut self, connection: Connection) -> Option<u16> {
        let qpn = connection.name.qpn_f;
        let at = self.rows.insert(connection)?;
        self.by_qpn.add(qpn.to_bits().into(), at);
        Some(at)
    }

    pub(super) fn remove(&mut self, at: u16) -> Connection {
        self.by_qpn.remove(self.rows[at].name.qpn_f.to_bits().into(), at);
        self.rows.remove(at)
    }

    /// The row of that name, if it is the one at this place.
    pub(super) fn named(&self, at: u16, name: &ConnectionName) -> Option<&Connection> {
        self.rows.get(at).filter(|row| row.name == *name)
    }

    pub(super) fn at(&self, at: u16) -> &Connection {
        &self.rows[at]
    }

    pub(super) fn at_mut(&mut self, at: u16) -> &mut Connection {
        &mut self.rows[at]
    }
}
