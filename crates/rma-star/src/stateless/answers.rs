//! Answers that wait for the device: RDAs, GDAs, EAs and rules of all connections, in one table of
//! fixed size (ours; the paper's NIC has a queue of send events).
//!
//! An answer keeps the key of what it answers, and all that is needed to write it. Hosts take
//! turns, and none gets more than half of what is free, but for an eighth of the table: or one that
//! asks for much would have all others' frames dropped (P13). GDAs, whose frames are long, leave a
//! quarter of it to the others.
//!
//! What a GD asks for is read when its answer is written, and whether it may be is looked at again
//! then: it waited for its turn, and a connection that was closed meanwhile is closed.

use arrayvec::ArrayVec;
use rma_core::{
    addr::HostAddr,
    backend::{BATCH, Transmit, TxFrame},
    crypto::Iv,
    fair_queue::{Bucket, BucketSecret, FairLinks, FairQueue},
    index_list::{IndexList, Links},
    limits::{TAG_LEN, UNANNOUNCED_LEN_MAX},
    op::ClassOfService,
    packet::SMALL,
    port::SourcePort,
    tenant::TenantIndex,
    time::Instant,
};

use super::{
    announce::{INITIAL_NUMBER, initial_of},
    guard::{place_of, verdict_of},
};
use crate::{
    config::Framing,
    counters::{StarDrop, StarEvent},
    keys::{Binding, FrameKey, KeyMessage},
    mr_table::Access,
    names::{ConnectionName, MrId, Side, Slot},
    portal::Verdict,
    sealer::Sealer,
    tables::{Tables, z_time},
    verbs::WqeOp,
    wire::{
        Answer, ChunkAnswer, EaEntry, EaOfZ, Gda, Guide, Header, KeyPhase, Rda, Rule, State,
        StateKind,
        data::{GDA_HEADER_LEN, RDA_HEADER_LEN},
        state::STATE_HEADER_LEN,
        told::CLOSE_LEN,
        work::{EA_ENTRY_LEN, WORK_HEADER_LEN},
    },
};

/// How many frames of one connection an EA answers at most. They have come in one batch.
const EA_ENTRIES: usize = 4;

/// The peer that is answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asker {
    /// The key of the frame that is answered.
    pub(super) key: FrameKey,
    /// Whether that is K_c, under which all is answered but an RD that wants an RDA, and a GD.
    pub(super) is_of_connection: bool,
    pub(super) connection: ConnectionName,
    /// The tenant of the connection's portal. The portal may be gone when the answer is sent.
    pub(super) tenant: TenantIndex,
    pub(super) phase: KeyPhase,
    /// The stateful side's address, and this host's.
    pub(super) f: HostAddr,
    pub(super) z: HostAddr,
    pub(super) source_port: SourcePort,
    /// The longest frame that can be sent back.
    pub(super) reply_len_max: usize,
    pub(super) came_at: Instant,
}

/// The subject of an answer.
#[derive(Clone, Copy, Debug)]
pub(super) enum What {
    /// An RD or a GD.
    Chunk {
        guide: Guide,
        /// The IV of the frame, which the answer is bound to.
        answered: Iv,
        /// The answer: of a GD, as far as is known yet.
        answer: Answer,
        is_gd: bool,
    },
    /// A CQEP, a STATE or an RD.
    Ea(EaEntry),
    /// A question for the rule of an MR.
    Rule { mr: MrId, number: u8 },
    /// A question for initial state.
    Initial,
    /// Nothing: this host has ended the connection, and says so behind all that it has answered.
    Close,
}

/// An answer that waits.
#[derive(Clone, Debug)]
enum Waits {
    Nothing,
    One(What),
    Eas(ArrayVec<EaEntry, EA_ENTRIES>),
}

#[derive(Clone, Debug)]
struct Entry {
    asker: Asker,
    waits: Waits,
}

/// The table.
#[derive(Debug)]
pub(super) struct Answers {
    entries: Box<[Entry]>,
    free: IndexList,
    free_links: Links,
    queue: FairQueue,
    links: FairLinks,
    secret: BucketSecret,
    /// How many of the entries are GDAs.
    gdas: usize,
    /// How many of them tell of ends of connections.
    closes: usize,
    /// EAs of the batch under way, which more frames of their connections may join, and the last
    /// one of the batch before.
    open_eas: ArrayVec<u16, { BATCH + 1 }>,
}

impl Answers {
    pub(super) fn new(capacity: u16, secret: BucketSecret) -> Self {
        let nobody = HostAddr::from_octets([0; 16]);
        let asker = Asker {
            key: FrameKey::NONE,
            is_of_connection: false,
            connection: ConnectionName::default(),
            tenant: TenantIndex::HOST,
            phase: KeyPhase::Even,
            f: nobody,
            z: nobody,
            source_port: SourcePort::FIRST,
            reply_len_max: 0,
            came_at: Instant::ZERO,
        };
        let mut free = IndexList::new();
        let mut free_links = Links::new(capacity.into());
        (0..capacity).for_each(|entry| free.push_back(&mut free_links, entry));
        Self {
            entries: vec![Entry { asker, waits: Waits::Nothing }; capacity.into()]
                .into_boxed_slice(),
            free,
            free_links,
            queue: FairQueue::new(),
            links: FairLinks::new(capacity.into()),
            secret,
            gdas: 0,
            closes: 0,
            open_eas: ArrayVec::new(),
        }
    }

    /// Bytes that the table takes.
    pub(super) const fn memory(&self) -> usize {
        self.entries.len() * (size_of::<Entry>() + Links::ENTRY_LEN + FairLinks::ENTRY_LEN)
    }

    /// How many answers wait.
    pub(super) const fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether an answer to `f` has room.
    pub(super) fn has_room(&self, f: HostAddr, what: &What) -> bool {
        self.has_room_in(self.secret.bucket_of(f), what)
    }

    fn has_room_in(&self, bucket: Bucket, what: &What) -> bool {
        let capacity = self.entries.len();
        // A burst of a host that is alone has room, and hosts that come later find some.
        let share = capacity.div_ceil(8).max((capacity - self.len()) / 2);
        let is_gda = matches!(what, What::Chunk { is_gd: true, .. });
        let is_close = matches!(what, What::Close);
        !self.free.is_empty()
            && self.queue.bucket_len(bucket) < share
            && (!is_gda || self.gdas < capacity - capacity / 4)
            // An application may end as many connections as it likes, to whom it likes.
            && (!is_close || self.closes < capacity / 8)
    }

    /// Puts an answer into the table. `false` if there is no room.
    pub(super) fn push(&mut self, asker: Asker, what: What, framing: Framing) -> bool {
        if framing == Framing::Fused
            && let What::Ea(ea) = what
            && self.join(&asker, ea)
        {
            return true;
        }
        let bucket = self.secret.bucket_of(asker.f);
        if !self.has_room_in(bucket, &what) {
            return false;
        }
        let Some(index) = self.free.pop_front(&mut self.free_links) else { return false };
        let waits = match what {
            What::Ea(ea) => {
                if !self.open_eas.is_full() {
                    self.open_eas.push(index);
                }
                Waits::Eas([ea].into_iter().collect())
            }
            one => Waits::One(one),
        };
        self.gdas += usize::from(matches!(what, What::Chunk { is_gd: true, .. }));
        self.closes += usize::from(matches!(what, What::Close));
        self.queue.push_back(&mut self.links, bucket, index);
        self.entries[usize::from(index)] = Entry { asker, waits };
        true
    }

    /// Has an EA of this batch say one more thing, if there is one for the same connection.
    fn join(&mut self, asker: &Asker, ea: EaEntry) -> bool {
        for &index in &self.open_eas {
            let entry = &mut self.entries[usize::from(index)];
            let is_same = entry.asker.connection == asker.connection
                && entry.asker.f == asker.f
                && entry.asker.phase == asker.phase
                && entry.asker.z == asker.z;
            if let Waits::Eas(eas) = &mut entry.waits
                && is_same
                && !eas.is_full()
            {
                eas.push(ea);
                return true;
            }
        }
        false
    }

    /// The frames of a batch have been handled: what comes later is answered by itself, but for the
    /// last connection's, whose frames a batch may end between. (If its EA is written meanwhile,
    /// nothing joins it.)
    pub(super) fn end_batch(&mut self) {
        if let Some(last) = self.open_eas.pop() {
            self.open_eas.clear();
            self.open_eas.push(last);
        }
    }

    /// Writes the next answer, to be sealed. Returns whether there was one.
    pub(super) fn write_next(
        &mut self,
        host: &Tables<'_>,
        sealer: &mut Sealer,
        now: Instant,
        out: &mut TxFrame<'_>,
    ) -> bool {
        while let Some(index) = self.queue.front() {
            if !sealer.can_seal() {
                host.counters.count(StarEvent::SealRefused);
                return false;
            }
            self.queue.pop_front(&mut self.links);
            // The next one that is used, as it is still in the cache.
            self.free.push_front(&mut self.free_links, index);
            let entry = &mut self.entries[usize::from(index)];
            let waits = core::mem::replace(&mut entry.waits, Waits::Nothing);
            match waits {
                Waits::One(What::Chunk { is_gd: true, .. }) => self.gdas -= 1,
                Waits::One(What::Close) => self.closes -= 1,
                _ => {}
            }
            let mut writer = Writer { host, sealer, asker: &entry.asker, now };
            if writer.write(&waits, out) {
                return true;
            }
        }
        false
    }
}

/// Writes one answer.
struct Writer<'a, 'h> {
    host: &'a Tables<'h>,
    sealer: &'a mut Sealer,
    asker: &'a Asker,
    now: Instant,
}

impl Writer<'_, '_> {
    fn write(&mut self, waits: &Waits, out: &mut TxFrame<'_>) -> bool {
        match waits {
            Waits::Nothing => false,
            Waits::One(What::Chunk { guide, answered, answer, is_gd: true }) => {
                self.write_gda(guide, answered, *answer, out)
            }
            Waits::One(What::Chunk { guide, answered, answer, is_gd: false }) => {
                self.write_rda(guide, answered, *answer, out)
            }
            Waits::One(What::Rule { mr, number }) => self.write_rule(*mr, *number, out),
            Waits::One(What::Initial) => {
                let octets = initial_of(self.host, self.asker.z).to_octets();
                self.write_state(StateKind::Initial, INITIAL_NUMBER, &octets, out)
            }
            Waits::One(What::Close) => self.write_state(StateKind::Close, 0, &[0; CLOSE_LEN], out),
            Waits::One(What::Ea(ea)) => self.write_ea(&[*ea], out),
            Waits::Eas(eas) => self.write_ea(eas, out),
        }
    }

    /// Whether so many octets have room. What has none is dropped: the stateful side, which knows
    /// how long packets may be, asks for less the next time.
    fn fits(&self, len: usize, out: &TxFrame<'_>) -> bool {
        let fits = len <= out.bytes.len() && len <= self.asker.reply_len_max;
        if !fits {
            self.host.counters.drop_frame(StarDrop::NoRoom);
        }
        fits
    }

    /// A header with a fresh IV.
    fn header(&mut self) -> Header {
        self.sealer.header(self.asker.connection, self.asker.phase, z_time(self.now))
    }

    fn delay_micros(&self) -> u16 {
        u16::try_from(self.now.nanos_since(self.asker.came_at) / 1_000).unwrap_or(u16::MAX)
    }

    fn transmit(&self, len: usize, out: &mut TxFrame<'_>) -> bool {
        let class = if len <= SMALL { ClassOfService::Latency } else { ClassOfService::Throughput };
        let port = self.host.config.place().stateful_port;
        let ends = [self.asker.z, self.asker.f];
        out.transmit = Some(Transmit {
            source_port: self.asker.source_port.answering(self.now),
            packet_len_max: UNANNOUNCED_LEN_MAX.max(len as u16),
            tenant: self.asker.tenant,
            ..Transmit::new(ends, port, class, len)
        });
        true
    }

    //= star#III-B-rda
    fn write_rda(
        &mut self,
        guide: &Guide,
        answered: &Iv,
        answer: Answer,
        out: &mut TxFrame<'_>,
    ) -> bool {
        let len = RDA_HEADER_LEN + TAG_LEN;
        if !self.fits(len, out) {
            return false;
        }
        let header = self.header();
        let rda = Rda(ChunkAnswer::to(guide, header, answer, self.delay_micros()));
        let mut octets = [0; RDA_HEADER_LEN];
        rda.emit(&mut octets);
        self.push_answer(&header, &octets, answered, out);
        self.transmit(len, out)
    }

    //= star#III-B-gda
    fn write_gda(
        &mut self,
        guide: &Guide,
        answered: &Iv,
        answer: Answer,
        out: &mut TxFrame<'_>,
    ) -> bool {
        let pd = guide.header.connection.pd;
        let access =
            if guide.slot == Slot::NONE { Access::REMOTE_READ } else { Access::LOCAL_READ };
        let mut answer = answer;
        if answer == Answer::Done {
            match verdict_of(self.host, guide) {
                Verdict::Open => {}
                Verdict::Done => return false,
                Verdict::Gone => answer = Answer::Gone,
            }
        }
        let (offset, len) = place_of(guide);
        let span = self.host.mrs.span(pd, guide.mr, access, offset, len);
        if answer == Answer::Done && span.is_err() {
            self.host.counters.count(StarEvent::Denied);
            answer = Answer::Denied;
        }
        let chunk_len = if answer == Answer::Done { guide.chunk_len } else { 0 };
        let len = GDA_HEADER_LEN + usize::from(chunk_len) + TAG_LEN;
        if !self.fits(len, out) {
            return false;
        }
        if let Ok(span) = span
            && answer == Answer::Done
        {
            let chunk = &mut out.bytes[GDA_HEADER_LEN..][..chunk_len.into()];
            let copied = span.memory.copy_out(span.offset, chunk);
            debug_assert!(copied.is_ok(), "the span was looked at");
        }
        let header = self.header();
        let answer = ChunkAnswer::to(guide, header, answer, self.delay_micros());
        let mut octets = [0; GDA_HEADER_LEN];
        Gda { answer, chunk_len }.emit(&mut octets);
        self.push_answer(&header, &octets, answered, out);
        self.transmit(len, out)
    }

    //= star#III-B-ea
    fn write_ea(&mut self, eas: &[EaEntry], out: &mut TxFrame<'_>) -> bool {
        let len = WORK_HEADER_LEN + eas.len() * EA_ENTRY_LEN + TAG_LEN;
        if !self.fits(len, out) {
            return false;
        }
        let Some(key) = self.connection_key() else { return false };
        let header = self.header();
        let delay_micros = self.delay_micros();
        let mut octets = [0; WORK_HEADER_LEN];
        EaOfZ { header, count: eas.len() as u8, delay_micros }.emit(&mut octets);
        let entries = out.bytes[WORK_HEADER_LEN..].as_chunks_mut().0;
        for (entry, ea) in entries.iter_mut().zip(eas) {
            ea.emit(entry);
        }
        self.push(&key, &header, &octets, out);
        self.transmit(len, out)
    }

    /// K_c of whoever is answered. `None` if the protection domain has gone.
    fn connection_key(&self) -> Option<FrameKey> {
        let Asker { key, is_of_connection, connection, f, z, .. } = *self.asker;
        if is_of_connection {
            return Some(key);
        }
        let message = KeyMessage::of_connection(&Binding { connection, f, z });
        Some(self.host.pd_of(&connection)?.key.derive(self.host.aead, &message))
    }

    //= star#III-D1-rules
    fn write_rule(&mut self, mr: MrId, number: u8, out: &mut TxFrame<'_>) -> bool {
        let Asker { connection, f, z, .. } = *self.asker;
        let Some(pd) = self.host.pd_of(&connection) else { return false };
        let (mr_len, access) = self.host.mrs.remote(connection.pd, mr).unwrap_or_default();
        let name = self.host.mrs.name(mr);
        let key_of = |op, needed: Access| {
            let message = KeyMessage::of_mr(&Binding { connection, f, z }, op, name);
            let is_allowed = access.allows(needed) && access != Access::default();
            is_allowed.then(|| pd.key.derive(self.host.aead, &message))
        };
        let rule = Rule {
            mr,
            len: mr_len,
            write: key_of(WqeOp::Write, Access::REMOTE_WRITE),
            read: key_of(WqeOp::Read, Access::REMOTE_READ),
        };
        self.write_state(StateKind::Rules, number, &rule.to_octets(), out)
    }

    /// Writes a STATE of one part.
    fn write_state(
        &mut self,
        kind: StateKind,
        number: u8,
        payload: &[u8],
        out: &mut TxFrame<'_>,
    ) -> bool {
        let len = STATE_HEADER_LEN + payload.len() + TAG_LEN;
        if !self.fits(len, out) {
            return false;
        }
        let header = self.header();
        let octets = State::write_whole(header, Side::Stateless, kind, number, payload, out.bytes);
        self.push(&self.asker.key, &header, &octets, out);
        self.transmit(len, out)
    }

    fn push<const LEN: usize>(
        &mut self,
        key: &FrameKey,
        header: &Header,
        octets: &[u8; LEN],
        out: &mut TxFrame<'_>,
    ) {
        out.bytes[..LEN].copy_from_slice(octets);
        let iv = header.iv(Side::Stateless);
        self.sealer.push(key, iv, octets, z_time(self.now));
    }

    fn push_answer<const LEN: usize>(
        &mut self,
        header: &Header,
        octets: &[u8; LEN],
        answered: &Iv,
        out: &mut TxFrame<'_>,
    ) {
        out.bytes[..LEN].copy_from_slice(octets);
        let iv = header.iv(Side::Stateless);
        self.sealer.push_answer(&self.asker.key, iv, octets, z_time(self.now), answered);
    }
}
