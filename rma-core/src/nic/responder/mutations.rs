//! The pending-write table: the responder's side of mutations, WRITE and Rekey (1RMA §5, figure 7).
//!
//! An entry goes round: free → waiting (admitted, waits for the solicitation window) → solicited
//! (hop 2 is out, data may come) → answering (its last frame waits to be sent) → free. The table
//! has a fixed size; a request that finds no entry is NACKed, and so is one that waits too long. No
//! class of service can take all entries. An entry keeps its share of the window until all its data
//! has come or cannot be under way any longer, also when its region has another key by then: that
//! data is authenticated, and not applied. But for one thing:
//!
//! # Nobody starves (P13, not in the paper)
//!
//! A recorded request is authentic, and an initiator that asks may be dead: the responder can tell
//! neither from an honest request before its data has come. So an entry holds its share of the
//! window for a time G ([`NicConfig::hold`]) that an honest one does not need. While somebody waits
//! who has no room, the ops that were solicited before that are *parked*: their share is refunded,
//! and they stay where they are. Data that comes for a parked op lands as it would have before. G
//! counts from the solicitation and not from the last data, so a trickle gains nothing.
//!
//! Where entries are wanting, the op that has been parked longest is forgotten, and so ends in
//! TIMEOUT. Where none is parked, the op that has waited longest in the longest of the lists makes
//! room, with a NACK, for one of a shorter list: initiators take turns by lists, as in
//! [`fair_queue`](crate::fair_queue).
//!
//! The responder drops a request that has come before as long as it remembers that: until another's
//! is remembered in its place, which is seldom before its op has ended. So the network's own
//! duplicates cost nothing.
//!
//! # No late effect (P2)
//!
//! An entry is solicited for a *limit*: the smaller of both hosts' timeouts, counted from before
//! hop 2 is sent. The initiator waits at least as long, from after it has received hop 2. So
//! whatever changes memory within the limit does so before the initiator gives up: it times out
//! last.
//!
//! Hardware applies data the moment it looks at the clock. An engine can be descheduled in between,
//! and two hosts' clocks do not run alike. So data is applied only up to the *deadline*, an eighth
//! of the limit earlier (the *guard*), by a clock that is read after the data was authenticated,
//! right before the copy; and the clock is read again right after it. If by then the limit may have
//! passed, the promise may be broken, and that is counted
//! ([`NicCounters::late_effects`](crate::nic::NicCounters::late_effects)): it is never silent.

#[cfg(test)]
mod consistency;
mod pending;
mod recorded;
mod staging;

use super::{
    admission::{Admission, Admitted, Asked},
    records::{Holder, OutcomeRecords, Reservation},
};
use crate::{
    addr::HostAddr,
    backend::{RxFrame, TxFrame},
    crypto::{DerivedRegionKey, Iv},
    error::DropReason,
    fair_queue::{Bucket, FairLinks, owners::OwnersQueue},
    granules::Granules,
    index_list::{IndexList, Links},
    nic::{
        NicConfig,
        region_table::{RegionTable, Rekeyed},
        security::{Opened, payload_of},
        solicitation_window::{SolicitationWindow, Solicitor},
        tables::Tables,
    },
    op::{ClassOfService, OpStatus},
    time::{Clock, Instant},
    wire::{MutationRequest, SolicitedData, mutation::DATA_HEADER_LEN},
};
use pending::{Pending, State};
use recorded::{Part, Shared};
pub(in crate::nic) use staging::Staging;

pub(in crate::nic) struct PendingWrites {
    entries: Box<[Pending]>,
    /// The number of the first of them: see [`parts`](crate::nic::parts).
    first_number: u16,
    links: Links,
    /// Least recently used first.
    free: IndexList,
    /// How many entries each class has in use, parked ones aside, and how many it may have.
    used: [usize; 2],
    share: usize,
    /// The entry that a request was given, by the low bits of its counter. Their number is a power
    /// of two.
    traces: Box<[u16]>,
    /// One for each class of service.
    waiting: [OwnersQueue; 2],
    waiting_links: FairLinks,
    /// In the order of solicitation, which is the order in which they are parked and forgotten.
    solicited: IndexList,
    /// How many entries may be solicited at a time: the others are for those that wait.
    solicited_max: usize,
    /// In the order of solicitation, all before those that are solicited.
    parked: IndexList,
    /// The sizes of the ops that are parked.
    parked_bytes: u32,
    /// Rekeys whose key not every engine of the host has taken yet, in their order. They are
    /// acknowledged when all have.
    installing: IndexList,
    answering: IndexList,
    /// The class that is asked first the next time.
    first: ClassOfService,
    /// The further state of recorded ops.
    shared: Shared,
    dispatch_timeout_nanos: u64,
    timeout_nanos: u64,
    hold_nanos: u64,
}

/// The place for one more op.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// There is a free entry.
    Free,
    /// This entry is parked, and to be forgotten.
    Parked(u16),
    /// This entry waits, and makes room.
    Waiting(u16),
}

impl PendingWrites {
    /// Bytes that each entry takes: itself, and its links.
    pub(in crate::nic) const ENTRY_LEN: usize =
        size_of::<Pending>() + Links::ENTRY_LEN + FairLinks::ENTRY_LEN;

    /// Bytes that each trace takes.
    pub(in crate::nic) const TRACE_LEN: usize = size_of::<u16>();

    /// How many traces there are for `entries`: enough that two requests seldom have one.
    pub(in crate::nic) const fn traces(entries: u32) -> u32 {
        entries.next_power_of_two() * 4
    }

    pub(super) fn new(config: &NicConfig) -> Self {
        let count = config.settings.pending_writes as u16;
        let (mut links, mut free) = (Links::new(count.into()), IndexList::new());
        (0..count).for_each(|index| free.push_back(&mut links, index));
        let traces = Self::traces(count.into()) as usize;
        Self {
            entries: (0..count).map(|_| Pending::free()).collect(),
            first_number: config.first_number(),
            links,
            free,
            used: [0; 2],
            share: usize::from(count - count / 4),
            traces: vec![0; traces].into_boxed_slice(),
            waiting: [OwnersQueue::new(), OwnersQueue::new()],
            waiting_links: FairLinks::new(count.into()),
            solicited: IndexList::new(),
            solicited_max: usize::from(count.div_ceil(2)),
            parked: IndexList::new(),
            parked_bytes: 0,
            installing: IndexList::new(),
            answering: IndexList::new(),
            first: ClassOfService::Latency,
            shared: Shared { records: OutcomeRecords::new(config), staging: Staging::new(count) },
            dispatch_timeout_nanos: config.dispatch_timeout_nanos,
            timeout_nanos: config.timeout_nanos,
            hold_nanos: config.hold_nanos,
        }
    }

    /// Returns the reason why there is no place for one more mutation of `class` that would wait in
    /// `bucket`, if so.
    pub(super) fn why_full(&self, class: ClassOfService, bucket: Bucket) -> Option<DropReason> {
        self.place_for(class, bucket).err()
    }

    /// Returns the place for one more mutation of `class`: a class may have three quarters of the
    /// table. A parked mutation counts for no class, as it makes room for one of any. A waiting
    /// mutation makes room for its own class, and for the other one where that has not had its
    /// share.
    fn place_for(&self, class: ClassOfService, bucket: Bucket) -> Result<Place, DropReason> {
        let own = &self.waiting[class as usize];
        let (who_waits, full) = if self.used[class as usize] >= self.share {
            (core::slice::from_ref(own), DropReason::PendingWriteShareFull)
        } else if !self.free.is_empty() {
            return Ok(Place::Free);
        } else if let Some(index) = self.parked.front() {
            return Ok(Place::Parked(index));
        } else {
            (&self.waiting[..], DropReason::PendingWritesFull)
        };
        let makes_room = OwnersQueue::who_makes_room(who_waits, own, bucket);
        makes_room.map(Place::Waiting).ok_or(full)
    }

    /// How many entries `class` has in use, parked ones aside.
    pub(in crate::nic) const fn used(&self, class: ClassOfService) -> usize {
        self.used[class as usize]
    }

    /// Returns the records of ops that were solicited.
    pub(in crate::nic) const fn records(&self) -> &OutcomeRecords {
        &self.shared.records
    }

    /// How many buffers have data of ordered ops that are not whole.
    pub(in crate::nic) fn staged(&self) -> usize {
        self.shared.staging.used()
    }

    /// How many ops are parked.
    pub(in crate::nic) fn parked(&self) -> usize {
        self.parked.len()
    }

    /// The sizes of the ops that are parked, together.
    pub(in crate::nic) const fn parked_bytes(&self) -> u32 {
        self.parked_bytes
    }

    /// Whether this request has come before. The table remembers only requests that were admitted,
    /// each until another is remembered in its place, and it knows a request by its tag: no
    /// initiator can have another's request dropped by claiming its IV. So the request need not be
    /// authenticated again.
    //= 1rma#5.1-replay
    pub(super) fn has_come(&self, asked: &Asked) -> bool {
        let before = &self.entries[usize::from(self.traces[self.trace(asked)])].asked;
        (before.initiator, &before.seal) == (asked.initiator, &asked.seal)
    }

    /// Returns the index at which the entry of a request is remembered.
    fn trace(&self, asked: &Asked) -> usize {
        let mixed = asked.header.counter as usize ^ usize::from(asked.header.engine.0);
        mixed & (self.traces.len() - 1)
    }

    fn any_waits(&self) -> bool {
        self.waiting.iter().any(|queue| !queue.is_empty())
    }

    /// Whether a mutation waits for nothing but the window.
    pub(super) fn wait_for_window(&self) -> bool {
        self.any_waits() && self.solicited.len() < self.solicited_max
    }

    /// Whether one more mutation could be solicited, no matter whose turn it is.
    fn may_solicit(&self, window: &SolicitationWindow) -> bool {
        window.has_room(Solicitor::Mutation) && self.solicited.len() < self.solicited_max
    }

    /// Whether somebody waits who has no room: a mutation, or, if `reads_wait`, a read of this
    /// host.
    fn is_room_wanted(&self, window: &SolicitationWindow, reads_wait: bool) -> bool {
        (self.any_waits() && !self.may_solicit(window))
            || (reads_wait && !window.has_room(Solicitor::Read))
    }

    /// Whether there is an op that is solicited and not parked.
    pub(super) fn any_solicited(&self) -> bool {
        !self.solicited.is_empty()
    }

    /// Parks what has held its share of the window for long enough, one op after the other, as long
    /// as somebody wants room.
    pub(super) fn park(&mut self, now: Instant, reads_wait: bool, tables: &mut Tables<'_>) {
        while self.is_room_wanted(tables.window, reads_wait)
            && let Some(index) = self.solicited.front()
        {
            let entry = &mut self.entries[usize::from(index)];
            if now.nanos_since(entry.solicited_at) < self.hold_nanos {
                return;
            }
            let size = entry.mutation.op_size();
            tables.window.refund(Solicitor::Mutation, size);
            entry.state = State::Parked;
            self.parked_bytes += size;
            self.used[entry.asked.header.class as usize] -= 1;
            self.solicited.remove(&mut self.links, index);
            self.parked.push_back(&mut self.links, index);
            tables.counters.parked.add(1);
        }
    }

    /// Makes room for one more mutation, which was asked `why_full`. Returns whether there is some.
    pub(super) fn make_room(
        &mut self,
        class: ClassOfService,
        bucket: Bucket,
        admission: &mut Admission,
        tables: &mut Tables<'_>,
    ) -> bool {
        match self.place_for(class, bucket) {
            Err(_) => return false,
            Ok(Place::Free) => (),
            Ok(Place::Parked(index)) => {
                tables.counters.parked_forgotten.add(1);
                self.unpark(index);
                self.release(index, tables.regions);
            }
            Ok(Place::Waiting(index)) => {
                tables.counters.pushed_out.add(1);
                let entry = &self.entries[usize::from(index)];
                admission.refuse(&entry.asked, &entry.key, OpStatus::Nack, tables);
                self.stop_waiting(index);
                self.release(index, tables.regions);
            }
        }
        true
    }

    /// Takes an admitted mutation, which there is room for. `immediate` is for ops that have one.
    pub(super) fn push(
        &mut self,
        now: Instant,
        asked: Asked,
        bucket: Bucket,
        &Admitted { request, key, revision }: &Admitted<MutationRequest>,
        immediate: u64,
    ) {
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
        entry.rekeyed = Rekeyed::NONE;
        entry.recorded.immediate = immediate;
        self.waiting[request.header.class as usize].push_back(
            &mut self.waiting_links,
            bucket,
            index,
        );
    }

    /// Lands solicited data, if it is in time; with the last of it, the op is done.
    pub(super) fn handle_data(
        &mut self,
        clock: &impl Clock,
        claims: SolicitedData,
        frame: &mut RxFrame<'_>,
        opened: &Opened,
        tables: &mut Tables<'_>,
    ) -> Result<(), DropReason> {
        let entry = self.entry_of(frame.source, &claims);
        let is_secret = entry.is_none_or(|it| it.mutation.op_type().shape().is_secret);
        let landed = match entry {
            Some(_) => self.accept_data(clock, claims, frame.bytes, opened, tables),
            None => Err(DropReason::UnknownPendingWrite),
        };
        if opened.right_tag.is_some() && is_secret {
            // It was decrypted in place, and may be a K_r: the device's buffers keep no copy of
            // one. Also not of the second of two copies, which finds no entry any longer.
            frame.bytes.fill(0);
        }
        landed
    }

    /// The entry that `data` from `source` claims to belong to. Its tag decides.
    fn entry_of(&self, source: HostAddr, data: &SolicitedData) -> Option<&Pending> {
        let entry = &self.entries[usize::from(self.index_of(data.pending)?)];
        entry.is_of(source, data).then_some(entry)
    }

    /// The entry of the op that a solicitation has called `number`: that entry itself, or its
    /// record, if it is still under way.
    #[inline]
    fn index_of(&self, number: u16) -> Option<u16> {
        let index = number.wrapping_sub(self.first_number);
        if usize::from(index) < self.entries.len() {
            Some(index)
        } else {
            self.shared.records.entry_of(number)
        }
    }

    /// Returns the key and binding that data is opened with: K_d, and the IV of the solicitation
    /// that it claims to answer.
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
        tables: &mut Tables<'_>,
    ) -> Result<(), DropReason> {
        let index = self.index_of(claims.pending).ok_or(DropReason::UnknownPendingWrite)?;
        let entry = &mut self.entries[usize::from(index)];
        //= channels#P6-authentic-first
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
        //= channels#2.4-once
        //= channels#P7-once
        if entry.arrived.meets(granules) {
            return Err(DropReason::Duplicate);
        }
        let arrived = entry.arrived.with(granules);
        let is_last = arrived == Granules::of(0, size);
        let applied = if entry.recorded.record.is_none() {
            entry.land(clock, start, payload, tables)
        } else {
            let part = Part { start, payload, is_last };
            entry.land_recorded(clock, &part, &mut self.shared, tables)
        };
        if matches!(applied, Err(DropReason::DataLate | DropReason::RekeysWait)) {
            return applied;
        }
        entry.arrived = arrived;
        if is_last {
            self.answer(index, tables);
        }
        applied
    }

    /// Ends an op whose data has all come: its share of the window is free again, and its answer
    /// waits to be sent.
    fn answer(&mut self, index: u16, tables: &mut Tables<'_>) {
        let entry = &mut self.entries[usize::from(index)];
        if entry.recorded.record.is_some() {
            entry.end_recorded(&mut self.shared, tables.regions);
        }
        if entry.state == State::Parked {
            self.used[entry.asked.header.class as usize] += 1;
            self.unpark(index);
        } else {
            tables.window.refund(Solicitor::Mutation, entry.mutation.op_size());
            self.solicited.remove(&mut self.links, index);
        }
        let entry = &mut self.entries[usize::from(index)];
        entry.state = State::Answering;
        let is_everywhere = tables.regions.is_everywhere(entry.rekeyed);
        let list = if is_everywhere { &mut self.answering } else { &mut self.installing };
        list.push_back(&mut self.links, index);
    }

    //= channels#P11-rekey
    /// Has those Rekeys acknowledged whose keys all engines have taken, and forgets those whose
    /// initiators have given up.
    fn follow_rekeys(&mut self, now: Instant, tables: &mut Tables<'_>) {
        while let Some(index) = self.installing.front() {
            let rekeyed = self.entries[usize::from(index)].rekeyed;
            let is_over = self.is_over(now, index);
            if !is_over && !tables.regions.is_everywhere(rekeyed) {
                break;
            }
            self.installing.remove(&mut self.links, index);
            if is_over {
                tables.counters.rekeys_held_up.add(1);
                self.release(index, tables.regions);
            } else {
                self.answering.push_back(&mut self.links, index);
            }
        }
    }

    /// Takes `index` out of the list of those that are parked.
    fn unpark(&mut self, index: u16) {
        self.parked_bytes -= self.entries[usize::from(index)].mutation.op_size();
        self.parked.remove(&mut self.links, index);
    }

    /// Takes `index` out of its queue.
    fn stop_waiting(&mut self, index: u16) {
        let class = self.entries[usize::from(index)].asked.header.class;
        self.waiting[class as usize].remove(&mut self.waiting_links, index);
    }

    /// NACKs what has waited too long for the window, and forgets what was solicited and never
    /// came.
    pub(super) fn handle_timeout(
        &mut self,
        now: Instant,
        admission: &mut Admission,
        tables: &mut Tables<'_>,
    ) {
        for class in ClassOfService::ALL {
            while let Some(index) = self.waiting[class as usize].oldest(&self.waiting_links) {
                let entry = &self.entries[usize::from(index)];
                if now.nanos_since(entry.arrived_at) < self.dispatch_timeout_nanos {
                    break;
                }
                tables.counters.count_drop(DropReason::NotSolicitedInTime);
                admission.refuse(&entry.asked, &entry.key, OpStatus::Nack, tables);
                self.stop_waiting(index);
                self.release(index, tables.regions);
            }
        }
        self.shared.records.expire(now);
        self.follow_rekeys(now, tables);
        //= 1rma#5.1-timeout-at-both-ends
        while let Some(index) = self.parked.front()
            && self.is_over(now, index)
        {
            self.unpark(index);
            self.release(index, tables.regions);
        }
        while let Some(index) = self.solicited.front()
            && self.is_over(now, index)
        {
            let size = self.entries[usize::from(index)].mutation.op_size();
            tables.window.refund(Solicitor::Mutation, size);
            self.solicited.remove(&mut self.links, index);
            self.release(index, tables.regions);
        }
    }

    /// Whether the data of an op that was solicited cannot be under way any longer.
    fn is_over(&self, now: Instant, index: u16) -> bool {
        now.nanos_since(self.entries[usize::from(index)].solicited_at) >= self.timeout_nanos
    }

    /// Makes the entry free. It is in no list any longer.
    fn release(&mut self, index: u16, regions: &mut RegionTable) {
        let entry = &mut self.entries[usize::from(index)];
        if entry.recorded.record.is_some() {
            entry.end_recorded(&mut self.shared, regions);
        }
        if entry.state != State::Parked {
            self.used[entry.asked.header.class as usize] -= 1;
        }
        entry.state = State::Free;
        self.free.push_back(&mut self.links, index);
    }

    /// When `handle_timeout` or `park` has work next.
    pub(super) fn poll_timeout(
        &self,
        window: &SolicitationWindow,
        reads_wait: bool,
    ) -> Option<Instant> {
        let entry = |index: u16| &self.entries[usize::from(index)];
        let shed = self.waiting.iter().filter_map(|queue| queue.oldest(&self.waiting_links));
        let shed =
            shed.map(|index| entry(index).arrived_at.after_nanos(self.dispatch_timeout_nanos));
        let since = |list: &IndexList| list.front().map(|index| entry(index).solicited_at);
        let forget = since(&self.parked).or(since(&self.solicited));
        let forget = forget.map(|at| at.after_nanos(self.timeout_nanos));
        let is_room_wanted = self.is_room_wanted(window, reads_wait);
        let park = since(&self.solicited).filter(|_| is_room_wanted);
        let park = park.map(|at| at.after_nanos(self.hold_nanos));
        // Nobody wakes this engine when another takes a key.
        let install = since(&self.installing);
        shed.chain(forget).chain(park).chain(install).min()
    }

    /// About how many frames there are to send. 0 only if there is none.
    pub(super) fn frames_waiting(&self, window: &SolicitationWindow) -> usize {
        let waiting = if self.any_waits() && self.may_solicit(window) {
            self.waiting.iter().map(OwnersQueue::len).sum()
        } else {
            0
        };
        self.answering.len() + waiting
    }

    /// Writes the next acknowledgement or solicitation, if there is one. Acknowledgements go first:
    /// there are never more of them than solicitations before them. Returns whether there was one.
    pub(super) fn poll_transmit(
        &mut self,
        now: Instant,
        admission: &mut Admission,
        tables: &mut Tables<'_>,
        out: &mut TxFrame<'_>,
    ) -> bool {
        if let Some(index) = self.answering.pop_front(&mut self.links) {
            let entry = &mut self.entries[usize::from(index)];
            let is_written = entry.write_acknowledgement(tables, out).is_some();
            self.release(index, tables.regions);
            return is_written;
        }
        //= 1rma#5.1-writes-solicited
        if !self.any_waits()
            || !tables.window.admits(Solicitor::Mutation)
            || self.solicited.len() >= self.solicited_max
        {
            return false;
        }
        let Some(index) = self.next_in_time(now, tables) else {
            // None waits any longer, and reads need not take turns with them.
            tables.window.note_contended(false);
            return false;
        };
        // Whoever drives this NIC may have had no reason to say what time it is.
        self.shared.records.expire(now);
        let is_recorded = self.entries[usize::from(index)].mutation.is_recorded();
        let holder = is_recorded.then(|| self.holder_of(index, tables));
        let number = match self.number_for(index, holder, tables) {
            Ok(number) => number,
            Err(reason) => {
                let entry = &self.entries[usize::from(index)];
                tables.counters.count_drop(reason);
                let status = reason.refused_with().unwrap_or(OpStatus::Nack);
                admission.refuse(&entry.asked, &entry.key, status, tables);
                self.release(index, tables.regions);
                return admission.poll_transmit(tables, out);
            }
        };
        let entry = &mut self.entries[usize::from(index)];
        tables.window.debit(Solicitor::Mutation, entry.mutation.op_size());
        entry.state = State::Solicited;
        entry.solicited_at = now;
        self.solicited.push_back(&mut self.links, index);
        let is_written = entry.write_solicitation(number, tables, out).is_some();
        if let Some(holder) = holder {
            //= channels#P4-fresh-ivs
            let counter = entry.solicitation_iv.counter();
            let (asker, op_type) = (entry.asked.asker(), entry.mutation.op_type());
            let reservation = Reservation { entry: index, counter, asker, holder, op_type };
            entry.recorded.record = self.shared.records.reserve(reservation);
        }
        is_written
    }

    /// Returns the number by which the solicitation of an entry names its op; or why it cannot be
    /// solicited.
    fn number_for(
        &self,
        index: u16,
        holder: Option<Holder>,
        tables: &Tables<'_>,
    ) -> Result<u16, DropReason> {
        let Pending { asked, revision, .. } = &self.entries[usize::from(index)];
        let region = asked.header.region;
        if tables.regions.get_at(region, *revision).is_none() {
            return Err(DropReason::OldKey);
        }
        let Some(holder) = holder else { return Ok(self.first_number + index) };
        let (records, is_shared) = (&self.shared.records, tables.regions.is_shared());
        records.next(region, holder, is_shared).map(|record| records.number(record))
    }

    /// Returns the holder of the record of an entry's op.
    fn holder_of(&self, index: u16, tables: &Tables<'_>) -> Holder {
        let region = self.entries[usize::from(index)].asked.header.region;
        let tenant = tables.regions.tenant_of(region);
        Holder::new(tenant, self.waiting_links.bucket_of(index))
    }

    /// Takes the next entry whose initiator still waits for the solicitation; the others it
    /// forgets.
    fn next_in_time(&mut self, now: Instant, tables: &mut Tables<'_>) -> Option<u16> {
        loop {
            let index = self.next_waiting()?;
            let entry = &self.entries[usize::from(index)];
            if now.nanos_since(entry.arrived_at) < entry.limit_nanos {
                return Some(index);
            }
            tables.counters.requests_abandoned.add(1);
            self.release(index, tables.regions);
        }
    }

    /// Takes the head of the class whose turn it is; of the other, if that class has none.
    fn next_waiting(&mut self) -> Option<u16> {
        let (turn, other) = (self.first, self.first.other());
        if let Some(index) = self.waiting[turn as usize].pop_front(&mut self.waiting_links) {
            self.first = other;
            return Some(index);
        }
        self.waiting[other as usize].pop_front(&mut self.waiting_links)
    }
}

impl core::fmt::Debug for PendingWrites {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("PendingWrites")
            .field("entries", &self.entries.len())
            .finish_non_exhaustive()
    }
}
