//! The pending-write table: the responder's side of mutations, WRITE and Rekey (1RMA §5, figure 7).
//!
//! An entry goes round: free → waiting (admitted, waits for the solicitation window) → solicited (hop 2 is out, data
//! may come) → answering (its last frame waits to be sent) → free. The table has a fixed size; a request that finds no
//! entry is NACKed, and so is one that waits too long. No class of service can take all entries. An entry keeps its
//! share of the window until all its data has come or cannot be under way any more, also when its region has another
//! key by then: that data is authenticated, and not applied.
//!
//! A request that has come before is dropped as long as that can be told: until another's is remembered in its place,
//! which is seldom before its op has ended. So the network's own duplicates cost nothing.
//!
//! # No late effect (P2)
//!
//! An entry is solicited for a *limit*: the smaller of both hosts' timeouts, counted from before hop 2 is sent. The
//! initiator waits at least as long, from after it has received hop 2. So whatever changes memory within the limit
//! does so before the initiator gives up: it times out last.
//!
//! Hardware applies data the moment it looks at the clock. An engine can be descheduled in between, and two hosts'
//! clocks do not run alike. So data is applied only up to the *deadline*, an eighth of the limit earlier (the
//! *guard*), by a clock that is read after the data was authenticated, right before the copy; and the clock is read
//! again right after it. If by then the limit may have passed, the promise may be broken, and that is counted
//! ([`NicCounters::late_effects`](super::NicCounters::late_effects)): it is never silent.

use super::{
    NicConfig,
    admission::{Admission, Admitted, Asked},
    granules::Granules,
    responder::Serving,
    security::{Opened, RequestSeal, payload_of},
    solicitation_window::{SolicitationWindow, Solicitor},
};
use crate::{
    addr::HostAddr,
    backend::{RxFrame, Transmit},
    crypto::{DerivedRegionKey, Iv, RegionKey},
    error::DropReason,
    index_list::{IndexList, Links},
    op::{ClassOfService, OpStatus},
    time::{Clock, Instant},
    wire::{
        Acknowledgement, Mutation, MutationRequest, Solicitation, SolicitedData,
        mutation::{ACKNOWLEDGEMENT_LEN, DATA_HEADER_LEN, SOLICITATION_LEN},
    },
};

//= 1rma#5.1-initiator-times-out-last
//= type=deviation
/// The part of the limit that is kept as guard: pauses shorter than this do no harm between clock and copy.
const GUARD_PART: u64 = 8;

/// The part of the limit by which two hosts' clocks may differ in running it off.
const DRIFT_PART: u64 = 64;

/// One entry. Flat, and filled in place, as a command slot is.
struct Pending {
    state: State,
    asked: Asked,
    mutation: Mutation,
    /// The largest time for which data may change anything, once it is solicited.
    limit_nanos: u64,
    /// Under which key of the region the request was admitted.
    revision: u64,
    /// K_d of an op under way.
    key: DerivedRegionKey,
    arrived_at: Instant,
    /// When hop 2 was sent, or a little earlier.
    solicited_at: Instant,
    /// What binds data and acknowledgement to hop 2.
    solicitation_iv: Iv,
    /// What data has come, applied or not.
    arrived: Granules,
    /// What the acknowledgement will say.
    status: OpStatus,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Waiting,
    Solicited,
    /// All data has come, and the acknowledgement waits to be sent.
    Answering,
}

impl Pending {
    /// How many of the limit's nanoseconds data may use: all but the guard.
    const fn deadline_nanos(&self) -> u64 {
        self.limit_nanos - self.limit_nanos / GUARD_PART
    }

    /// After how many nanoseconds the initiator may have given up.
    const fn given_up_nanos(&self) -> u64 {
        self.limit_nanos - self.limit_nanos / DRIFT_PART
    }

    /// Whether `data` from `source` claims to belong here. Its tag decides.
    fn is_of(&self, source: HostAddr, data: &SolicitedData) -> bool {
        let (own, its) = (&self.asked.header, &data.header);
        self.state == State::Solicited
            && self.asked.initiator == source
            && (own.slot, own.generation) == (its.slot, its.generation)
            && (own.pid, own.region, own.class) == (its.pid, its.region, its.class)
    }
}

pub(super) struct PendingWrites {
    entries: Box<[Pending]>,
    links: Links,
    /// Least recently used first.
    free: IndexList,
    /// How many entries each class has in use, and how many it may have.
    used: [usize; 2],
    share: usize,
    /// Which entry a request was given, by the low bits of its counter. Their number is a power of two.
    traces: Box<[u16]>,
    /// In the order of arrival, one for each class of service.
    waiting: [IndexList; 2],
    /// In the order of solicitation, which is the order in which they are forgotten.
    solicited: IndexList,
    answering: IndexList,
    /// Which class is asked first the next time.
    first: ClassOfService,
    dispatch_timeout_nanos: u64,
    timeout_nanos: u64,
}

impl PendingWrites {
    /// Bytes that each entry takes: itself, and its links.
    pub(super) const ENTRY_LEN: usize = size_of::<Pending>() + Links::ENTRY_LEN;

    /// Bytes that each trace takes.
    pub(super) const TRACE_LEN: usize = size_of::<u16>();

    /// How many traces there are for `entries`: enough that two requests seldom have one.
    pub(super) const fn traces(entries: u32) -> u32 {
        entries.next_power_of_two() * 4
    }

    pub(super) fn new(config: &NicConfig) -> Self {
        let count = config.settings.pending_writes as u16;
        let (mut links, mut free) = (Links::new(count.into()), IndexList::new());
        (0..count).for_each(|index| free.push_back(&mut links, index));
        let traces = Self::traces(count.into()) as usize;
        Self {
            entries: (0..count).map(|_| Pending::free()).collect(),
            links,
            free,
            used: [0; 2],
            share: usize::from(count - count / 4),
            traces: vec![0; traces].into_boxed_slice(),
            waiting: [IndexList::new(), IndexList::new()],
            solicited: IndexList::new(),
            answering: IndexList::new(),
            first: ClassOfService::Latency,
            dispatch_timeout_nanos: config.dispatch_timeout_nanos,
            timeout_nanos: config.timeout_nanos,
        }
    }

    /// Whether there is no place for one more mutation of `class`: a class may have three quarters of the table.
    pub(super) fn is_full(&self, class: ClassOfService) -> bool {
        self.free.is_empty() || self.used[class as usize] >= self.share
    }

    /// How many entries `class` has in use.
    pub(super) const fn used(&self, class: ClassOfService) -> usize {
        self.used[class as usize]
    }

    /// Whether this request has come before, as far as that can still be told. Only requests that were admitted
    /// are remembered, and a request is known by its tag: nobody can claim another's IV for his own to have it
    /// dropped. So it need not be authenticated again.
    //= 1rma#5.1-replay
    pub(super) fn has_come(&self, asked: &Asked) -> bool {
        let before = &self.entries[usize::from(self.traces[self.trace(asked)])].asked;
        (before.initiator, &before.seal) == (asked.initiator, &asked.seal)
    }

    /// Where the entry of a request is remembered.
    fn trace(&self, asked: &Asked) -> usize {
        let mixed = asked.header.counter as usize ^ usize::from(asked.header.engine.0);
        mixed & (self.traces.len() - 1)
    }

    /// Whether a mutation waits for the window.
    pub(super) fn any_waits(&self) -> bool {
        self.waiting.iter().any(|list| !list.is_empty())
    }

    /// Takes an admitted mutation. It was asked `is_full`.
    pub(super) fn push(
        &mut self,
        now: Instant,
        asked: Asked,
        admitted: &Admitted<MutationRequest>,
    ) {
        let &Admitted { request, key, revision } = admitted;
        let Some(index) = self.free.pop_front(&mut self.links) else { return };
        self.traces[self.trace(&asked)] = index;
        self.used[request.header.class as usize] += 1;
        let entry = &mut self.entries[usize::from(index)];
        entry.state = State::Waiting;
        entry.asked = asked;
        entry.mutation = request.mutation;
        //= 1rma#5.1-initiator-times-out-last
        entry.limit_nanos = self.timeout_nanos.min(u64::from(request.timeout_micros) * 1_000);
        entry.revision = revision;
        entry.key = key;
        entry.arrived_at = now;
        entry.arrived = Granules::NONE;
        entry.status = OpStatus::Ok;
        self.waiting[request.header.class as usize].push_back(&mut self.links, index);
    }

    /// Lands solicited data, if it is in time; with the last of it, the op is done.
    pub(super) fn handle_data(
        &mut self,
        clock: &impl Clock,
        claims: SolicitedData,
        frame: &mut RxFrame<'_>,
        opened: &Opened,
        window: &mut SolicitationWindow,
        serving: &mut Serving<'_>,
    ) -> Result<(), DropReason> {
        let entry = self.entry_of(frame.source, &claims);
        let is_write = entry.is_some_and(|it| matches!(it.mutation, Mutation::Write { .. }));
        let landed = match entry {
            Some(_) => self.accept_data(clock, claims, frame.bytes, opened, window, serving),
            None => Err(DropReason::UnknownPendingWrite),
        };
        if opened.authentic && !is_write {
            // It was decrypted in place, and may be a K_r: the device's buffers keep no copy of one. Also not of
            // the second of two copies, which finds no entry any more.
            frame.bytes.fill(0);
        }
        landed
    }

    /// The entry that `data` from `source` claims to belong to. Its tag decides.
    fn entry_of(&self, source: HostAddr, data: &SolicitedData) -> Option<&Pending> {
        let entry = self.entries.get(usize::from(data.pending))?;
        entry.is_of(source, data).then_some(entry)
    }

    /// What data is opened with: K_d, and the IV of the solicitation that it claims to answer.
    pub(super) fn solicitation_of(
        &self,
        source: HostAddr,
        data: &SolicitedData,
    ) -> Option<(&DerivedRegionKey, &Iv)> {
        let entry = self.entry_of(source, data)?;
        Some((&entry.key, &entry.solicitation_iv))
    }

    /// [`PendingWrites::handle_data`] of an op that is there.
    fn accept_data(
        &mut self,
        clock: &impl Clock,
        claims: SolicitedData,
        frame: &[u8],
        opened: &Opened,
        window: &mut SolicitationWindow,
        serving: &mut Serving<'_>,
    ) -> Result<(), DropReason> {
        let index = claims.pending;
        let entry = &mut self.entries[usize::from(index)];
        let data =
            opened.answer(&entry.solicitation_iv, claims).ok_or(DropReason::DataUnauthenticated)?;
        let payload = payload_of(frame, DATA_HEADER_LEN);
        let (start, end) = data.span();
        let size = entry.mutation.op_size();
        if !Granules::may_be_cut(start, end, size) {
            return Err(DropReason::OutsideOp);
        }
        let granules = Granules::of(start, end);
        //= 1rma#5.1-replay
        if entry.arrived.meets(granules) {
            return Err(DropReason::Duplicate);
        }
        let applied = entry.land(clock, start, payload, serving);
        if applied == Err(DropReason::DataLate) {
            return applied;
        }
        entry.arrived = entry.arrived.with(granules);
        if entry.arrived == Granules::of(0, size) {
            self.settle(index, window);
        }
        applied
    }

    /// Ends an op whose data has all come: its share of the window is free again, and its answer waits to be sent.
    fn settle(&mut self, index: u16, window: &mut SolicitationWindow) {
        let entry = &mut self.entries[usize::from(index)];
        window.refund(entry.mutation.op_size());
        entry.state = State::Answering;
        self.solicited.remove(&mut self.links, index);
        self.answering.push_back(&mut self.links, index);
    }

    /// NACKs what has waited too long for the window, and forgets what was solicited and never came.
    pub(super) fn handle_timeout(
        &mut self,
        now: Instant,
        window: &mut SolicitationWindow,
        admission: &mut Admission,
        serving: &mut Serving<'_>,
    ) {
        for class in ClassOfService::ALL {
            while let Some(index) = self.waiting[class as usize].front() {
                let entry = &self.entries[usize::from(index)];
                if now.nanos_since(entry.arrived_at) < self.dispatch_timeout_nanos {
                    break;
                }
                serving.counters.count_drop(DropReason::InboundQueueFull);
                admission.refuse(&entry.asked, &entry.key, OpStatus::Nack, serving);
                self.waiting[class as usize].remove(&mut self.links, index);
                self.release(index);
            }
        }
        //= 1rma#5.1-timeout-at-both-ends
        while let Some(index) = self.solicited.front() {
            let entry = &self.entries[usize::from(index)];
            if now.nanos_since(entry.solicited_at) < self.timeout_nanos {
                break;
            }
            window.refund(entry.mutation.op_size());
            self.solicited.remove(&mut self.links, index);
            self.release(index);
        }
    }

    fn release(&mut self, index: u16) {
        let entry = &mut self.entries[usize::from(index)];
        entry.state = State::Free;
        self.used[entry.asked.header.class as usize] -= 1;
        self.free.push_back(&mut self.links, index);
    }

    /// When `handle_timeout` has work next.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let entry = |index: u16| &self.entries[usize::from(index)];
        let shed = self.waiting.iter().filter_map(IndexList::front);
        let shed =
            shed.map(|index| entry(index).arrived_at.after_nanos(self.dispatch_timeout_nanos));
        let forget = self.solicited.front();
        let forget = forget.map(|index| entry(index).solicited_at.after_nanos(self.timeout_nanos));
        shed.chain(forget).min()
    }

    /// About how many frames there are to send. 0 only if there is none.
    pub(super) fn frames_waiting(&self, window: &SolicitationWindow) -> usize {
        let waiting =
            if window.admits_op() { self.waiting.iter().map(IndexList::len).sum() } else { 0 };
        self.answering.len() + waiting
    }

    /// Writes the next acknowledgement or solicitation, if there is one. Acknowledgements go first: there are
    /// never more of them than solicitations before them.
    pub(super) fn poll_transmit(
        &mut self,
        now: Instant,
        window: &mut SolicitationWindow,
        admission: &mut Admission,
        serving: &mut Serving<'_>,
        out: &mut [u8],
    ) -> Option<Transmit> {
        if let Some(index) = self.answering.pop_front(&mut self.links) {
            let entry = &mut self.entries[usize::from(index)];
            let transmit = entry.write_acknowledgement(serving, out);
            self.release(index);
            return transmit;
        }
        //= 1rma#5.1-writes-solicited
        if !window.admits(Solicitor::Mutation) {
            return None;
        }
        let Some(index) = self.next_in_time(now, serving) else {
            // None waits any more, and reads need not take turns with them.
            window.note_waiting(true, false);
            return None;
        };
        let entry = &mut self.entries[usize::from(index)];
        if serving.regions.get_at(entry.asked.header.region, entry.revision).is_none() {
            serving.counters.count_drop(DropReason::OldKey);
            let status = OpStatus::RemoteAuthenticationFailure;
            admission.refuse(&entry.asked, &entry.key, status, serving);
            self.release(index);
            return admission.poll_transmit(serving, out);
        }
        window.debit(Solicitor::Mutation, entry.mutation.op_size());
        entry.state = State::Solicited;
        entry.solicited_at = now;
        self.solicited.push_back(&mut self.links, index);
        entry.write_solicitation(index, serving, out)
    }

    /// Takes the next entry whose initiator still waits for the solicitation; the others it forgets.
    fn next_in_time(&mut self, now: Instant, serving: &Serving<'_>) -> Option<u16> {
        loop {
            let index = self.next_waiting()?;
            let entry = &self.entries[usize::from(index)];
            if now.nanos_since(entry.arrived_at) < entry.limit_nanos {
                return Some(index);
            }
            serving.counters.count_abandoned();
            self.release(index);
        }
    }

    /// Takes the head of the class whose turn it is; of the other, if that class has none.
    fn next_waiting(&mut self) -> Option<u16> {
        let (turn, other) = (self.first, self.first.other());
        if let Some(index) = self.waiting[turn as usize].pop_front(&mut self.links) {
            self.first = other;
            return Some(index);
        }
        self.waiting[other as usize].pop_front(&mut self.links)
    }
}

impl Pending {
    fn free() -> Self {
        let header = crate::wire::Header::NONE;
        let nobody = HostAddr::from_octets([0; 16]);
        let asked = Asked { header, seal: RequestSeal::NONE, initiator: nobody, responder: nobody };
        Self {
            state: State::Free,
            asked,
            mutation: Mutation::Rekey,
            limit_nanos: 0,
            revision: 0,
            key: DerivedRegionKey::RESERVED,
            arrived_at: Instant::ZERO,
            solicited_at: Instant::ZERO,
            solicitation_iv: Iv::NONE,
            arrived: Granules::NONE,
            status: OpStatus::Ok,
        }
    }

    /// Applies authentic data, if it is in time and its region is as it was when the op was admitted.
    fn land(
        &mut self,
        clock: &impl Clock,
        start: u32,
        payload: &[u8],
        serving: &mut Serving<'_>,
    ) -> Result<(), DropReason> {
        if serving.regions.get_at(self.asked.header.region, self.revision).is_none() {
            self.status = OpStatus::RemoteAuthenticationFailure;
            return Err(DropReason::OldKey);
        }
        // The turn's reading may be old by now; this one is not.
        //= 1rma#5.1-timeout-at-both-ends
        if clock.now().nanos_since(self.solicited_at) >= self.deadline_nanos() {
            return Err(DropReason::DataLate);
        }
        self.apply(start, payload, serving);
        if clock.now().nanos_since(self.solicited_at) >= self.given_up_nanos() {
            // Too late to undo, and so to be known.
            serving.counters.count_late_effect();
        }
        Ok(())
    }

    /// Changes what the op is to change. The caller has checked that all is as it was when it was admitted.
    fn apply(&self, start: u32, payload: &[u8], serving: &mut Serving<'_>) {
        let region = self.asked.header.region;
        match self.mutation {
            Mutation::Write { region_offset, .. } => {
                let offset = region_offset + u64::from(start);
                if let Some(entry) = serving.regions.get(region) {
                    entry.memory.copy_in(offset, payload).expect("in bounds when it was admitted");
                }
            }
            //= 1rma#5.2-rekey
            Mutation::Rekey => {
                if let Ok(key) = payload.try_into() {
                    let _ = serving.regions.rekey(region, &RegionKey::from_bytes(key));
                }
            }
        }
    }

    fn write_solicitation(
        &mut self,
        index: u16,
        serving: &mut Serving<'_>,
        out: &mut [u8],
    ) -> Option<Transmit> {
        let solicitation = Solicitation {
            header: self.asked.header,
            pending: index,
            payload_len_max: serving.config.payload_len_max(self.asked.responder),
        };
        let frame: &mut [u8; SOLICITATION_LEN] = out.first_chunk_mut()?;
        let request_iv = &self.asked.seal.iv;
        self.solicitation_iv =
            serving.security.write_solicitation(&self.key, request_iv, solicitation, frame);
        Some(self.asked.reply(SOLICITATION_LEN, true))
    }

    fn write_acknowledgement(&self, serving: &mut Serving<'_>, out: &mut [u8]) -> Option<Transmit> {
        let acknowledgement = Acknowledgement { header: self.asked.header, status: self.status };
        let frame: &mut [u8; ACKNOWLEDGEMENT_LEN] = out.first_chunk_mut()?;
        let iv = &self.solicitation_iv;
        serving.security.write_acknowledgement(&self.key, iv, acknowledgement, frame);
        Some(self.asked.reply(ACKNOWLEDGEMENT_LEN, true))
    }
}

impl core::fmt::Debug for PendingWrites {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("PendingWrites")
            .field("entries", &self.entries.len())
            .finish_non_exhaustive()
    }
}
