//! The target: pending writes, its window, the region's key and revision, its word.
//!
//! Between the look at the clock and the copy, and between the copy and the next look, it may be
//! stopped for any time; then it does nothing else. All its other steps are atomic.

mod landing;
mod recorded;

pub(crate) use landing::{copy, look_again};

use crate::four_hop_model::{
    effects::Effects,
    model::State,
    network::{Frame, Status},
    receive_queue::{Post, ReceiveQueue},
    records::{self, Name, Records},
    script::{
        ENTRIES_MAX, FIRST_KEY, Flaw, GRANULES_MAX, Key, OPS_MAX, OpId, SOLICITATIONS_MAX, Script,
        SolicitationId,
    },
    settle,
};

/// An entry of the pending-write table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Entry {
    pub(crate) op: OpId,
    /// The revision of the key that hop 1 authenticated under.
    revision: u8,
    /// The hop 2 that was sent; `None` while it waits.
    pub(crate) solicitation: Option<SolicitationId>,
    /// Its share of the window was given to others.
    pub(crate) parked: bool,
    /// Ticks since hop 2.
    age: u8,
    /// One bit for each granule.
    pub(crate) arrived: u8,
    /// The record that was taken with hop 2, of a recorded op.
    record: Option<u8>,
    pub(crate) post: Post,
}

impl Entry {
    /// Returns the name by which its initiator would ask about it.
    fn name(&self) -> Option<Name> {
        Some(Name { by: self.solicitation?, record: self.record? })
    }

    /// Whether that is what the initiator would ask about `op` by.
    pub(crate) fn is_asked_by(&self, state: &State, op: OpId) -> bool {
        self.name().is_some() && self.name() == state.initiator.names[usize::from(op)]
    }
}

/// A hop 2 that was sent: what its IV stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Solicitation {
    /// The op whose hop 1 it answers.
    pub(crate) op: OpId,
    /// The entry. It names that, or the record that knows it.
    index: u8,
    pub(crate) record: Option<u8>,
    /// The word before, which its hop 4 brings along.
    result: u8,
}

/// A frame of data that has passed all checks, on its way into the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Landing {
    index: u8,
    pub(crate) op: OpId,
    granule: u8,
    pub(crate) copied: bool,
    /// Whether the op had been reported as failed when its granule was copied.
    late: bool,
    /// Ticks for which the target has been stopped.
    paused: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Target {
    pub(crate) entries: [Option<Entry>; ENTRIES_MAX],
    /// All hops 2 that were ever sent.
    pub(crate) solicitations: [Solicitation; SOLICITATIONS_MAX],
    pub(crate) solicited: u8,
    pub(crate) records: Records,
    pub(crate) queue: ReceiveQueue,
    /// The word that atomics work on.
    word: u8,
    pub(crate) landing: Option<Landing>,
    /// Granules of window in use.
    pub(crate) debited: u8,
    pub(crate) key: Key,
    revision: u8,
    pub(crate) driver_rekeyed: bool,
    pub(crate) restarted: bool,
    /// How many hops 2 had been sent before this life. Only who asks about one looks at it.
    solicited_before: u8,
    pub(crate) effects: Effects,
}

impl Target {
    pub(crate) fn new(script: &Script) -> Self {
        Self {
            entries: [None; ENTRIES_MAX],
            solicitations: [Solicitation::default(); SOLICITATIONS_MAX],
            solicited: 0,
            records: Records::default(),
            queue: ReceiveQueue::new(script.posts),
            word: 0,
            landing: None,
            debited: 0,
            key: FIRST_KEY,
            revision: 0,
            driver_rekeyed: false,
            restarted: false,
            solicited_before: 0,
            effects: Effects::default(),
        }
    }

    fn entry(&self, index: u8) -> Option<Entry> {
        self.entries[usize::from(index)]
    }

    pub(crate) fn may_solicit(&self, script: &Script, index: u8) -> bool {
        let recorded = |entry: Entry| script.op(entry.op).is_recorded();
        self.entry(index).is_some_and(|entry| {
            entry.solicitation.is_none()
                && (!recorded(entry) || self.records.place(script).is_some())
        }) && !self.is_outdated(script, index)
            && self.solicited < script.solicitations
            // As for reads: what is free must do for an op of the largest size.
            && script.window - self.debited >= GRANULES_MAX
    }

    /// Sends hop 2 of an entry that waits.
    pub(crate) fn solicit(&mut self, script: &Script, index: u8) -> Frame {
        let by = self.solicited;
        let entry = self.entries[usize::from(index)].as_mut().expect("may_solicit was asked");
        entry.solicitation = Some(by);
        let is_recorded = script.op(entry.op).is_recorded();
        entry.record = self.records.place(script).filter(|_| is_recorded);
        if let Some(name) = entry.name() {
            self.records.reserve(name, entry.op, index);
        }
        let Entry { op, record, .. } = *entry;
        self.solicitations[usize::from(by)] = Solicitation { op, index, record, result: 0 };
        self.debited += script.op(entry.op).granules();
        self.solicited += 1;
        Frame::Solicitation { by }
    }

    pub(crate) fn may_shed(&self, index: u8) -> bool {
        self.entry(index).is_some_and(|entry| entry.solicitation.is_none())
    }

    /// An entry has waited too long for window. That time is not modelled: it may be any.
    pub(crate) fn shed(&mut self, index: u8) -> Frame {
        let entry = self.entries[usize::from(index)].take().expect("may_shed was asked");
        Frame::Nack { op: entry.op }
    }

    pub(crate) fn may_forget(&self, index: u8) -> bool {
        self.entry(index).is_some_and(|entry| entry.solicitation.is_some())
    }

    /// An entry has waited too long for its data. That may be any time as well.
    pub(crate) fn forget(&mut self, script: &Script, index: u8) {
        self.remove(script, index);
    }

    /// Whether an entry holds window that another waits for.
    pub(crate) fn may_park(&self, script: &Script, index: u8) -> bool {
        let waits = (0..ENTRIES_MAX as u8).any(|other| {
            self.entry(other).is_some_and(|entry| entry.solicitation.is_none())
                && !self.is_outdated(script, other)
        });
        self.entry(index).is_some_and(|entry| entry.solicitation.is_some() && !entry.parked)
            && waits
            && script.window - self.debited < GRANULES_MAX
    }

    /// An entry has held its share of the window for long enough. That may be any time.
    pub(crate) fn park(&mut self, script: &Script, index: u8) {
        let entry = self.entries[usize::from(index)].as_mut().expect("may_park was asked");
        entry.parked = true;
        self.debited -= script.op(entry.op).granules();
    }

    /// Whether the key that an entry was admitted under has been replaced.
    fn is_outdated(&self, script: &Script, index: u8) -> bool {
        self.entry(index).is_some_and(|entry| entry.revision != self.revision)
            && !script.has(Flaw::RevisionUnchecked)
    }

    pub(crate) fn may_refuse(&self, script: &Script, index: u8) -> bool {
        self.is_outdated(script, index) && self.may_shed(index)
    }

    /// Forgets an entry that waits and whose key was replaced. A notice says so: it is one that
    /// anybody could make.
    pub(crate) fn refuse(&mut self, script: &Script, index: u8) {
        self.remove(script, index);
    }

    /// Data came under a key that was replaced, or for a queue that has no post: nothing of it is
    /// copied, and after the last of it hop 4 says so.
    fn discard(
        &mut self,
        script: &Script,
        index: u8,
        granule: u8,
        status: Status,
    ) -> Option<Frame> {
        let entry = self.entries[usize::from(index)].as_mut().expect("the caller saw it");
        entry.arrived |= 1 << granule;
        if entry.arrived != script.op(entry.op).all() {
            return None;
        }
        let debited = self.debited;
        let by = self.remove(script, index).solicitation?;
        if script.has(Flaw::RefusedWithoutRefund) {
            self.debited = debited;
        }
        Some(Frame::Acknowledgement { by, status })
    }

    /// The entry that a request is given. Whoever is parked is forgotten where none is free.
    fn place_for_request(&mut self, script: &Script) -> Option<usize> {
        let entries = &self.entries[..usize::from(script.entries)];
        let parked = |entry: &Option<Entry>| entry.is_some_and(|entry| entry.parked);
        let free = entries.iter().position(Option::is_none);
        let place = free.or(entries.iter().position(parked))?;
        if self.entries[place].is_some() {
            self.remove(script, place as u8);
        }
        Some(place)
    }

    /// An entry ends without having been applied, and with it what it debited, its post and its
    /// hold of a record.
    fn remove(&mut self, script: &Script, index: u8) -> Entry {
        let entry = self.end(script, index, records::State::NotApplied);
        self.queue.give_back(entry.post);
        entry
    }

    /// An entry ends, and with it what it debited. `how` is kept in its record.
    fn end(&mut self, script: &Script, index: u8, how: records::State) -> Entry {
        let entry = self.entries[usize::from(index)].take().expect("the caller saw it");
        if entry.solicitation.is_some() && !entry.parked {
            self.debited -= script.op(entry.op).granules();
        }
        if let Some(name) = entry.name() {
            self.records.conclude(script, name, how);
        }
        entry
    }

    /// The clock goes on.
    pub(crate) fn tick(&mut self, script: &Script) {
        for entry in self.entries.iter_mut().flatten() {
            let runs = entry.solicitation.is_some()
                && (entry.arrived != 0 || !script.has(Flaw::DeadlineFromHopThree));
            entry.age = script.age_max().min(entry.age + u8::from(runs));
        }
        if let Some(landing) = &mut self.landing
            && script.timing.pause_max.is_some()
        {
            landing.paused += 1;
        }
        for left in &mut self.effects.retained {
            *left = left.saturating_sub(1);
        }
    }

    /// Whether time changes anything here.
    pub(crate) fn is_timed(&self, script: &Script) -> bool {
        let mut solicited = self.entries.iter().flatten().filter(|e| e.solicitation.is_some());
        solicited.any(|entry| entry.age < script.age_max())
    }

    /// Whether an entry waits for the data that a hop 2 asked for.
    pub(crate) fn awaits(&self, by: SolicitationId) -> bool {
        self.entries.iter().flatten().any(|entry| entry.solicitation == Some(by))
    }

    /// Whether the clock can go on: the target may be stopped for so long and no longer.
    pub(crate) fn may_tick(&self, script: &Script) -> bool {
        let paused = self.landing.map_or(0, |landing| landing.paused);
        self.landing.is_none() || script.timing.pause_max.is_none_or(|most| paused < most)
    }

    /// The region's key becomes another, and so does its revision.
    pub(crate) fn rekey(&mut self, to: Key) {
        self.effects.key_returned |= self.effects.replaced & 1 << to != 0;
        self.effects.replaced |= 1 << self.key;
        self.key = to;
        self.revision += 1;
    }

    /// Whether a key was the region's and is not any longer.
    pub(crate) fn was_replaced(&self, key: Key) -> bool {
        self.effects.replaced & 1 << key != 0
    }

    /// Whether there is anything that a restart would end.
    pub(crate) fn is_busy(&self) -> bool {
        self.entries.iter().any(Option::is_some) || self.records.all().next().is_some()
    }

    /// The process ends and another begins, and registers the region under the key that it has.
    pub(crate) fn restart(&mut self, script: &Script) {
        self.entries = [None; ENTRIES_MAX];
        self.debited = 0;
        self.records = Records::default();
        self.queue.posted = script.posts - self.queue.consumed;
        self.effects.retained = [0; OPS_MAX];
        if script.keeps_records() {
            self.solicited_before = self.solicited;
        }
        self.restarted = true;
    }

    /// Bytes that the entries should have debited.
    pub(crate) fn in_service(&self, script: &Script) -> u8 {
        let solicited = self.entries.iter().flatten();
        let solicited = solicited.filter(|entry| entry.solicitation.is_some() && !entry.parked);
        solicited.map(|entry| script.op(entry.op).granules()).sum()
    }
}

/// Hops 1 and 3, and SETTLE.
pub(crate) fn receive(script: &Script, state: &mut State, frame: Frame) {
    match frame {
        Frame::Request { op } => receive_request(script, state, op),
        Frame::Data { op, by, granule } => landing::receive_data(script, state, op, by, granule),
        Frame::Settle { op, key } => settle::answer(script, state, op, key),
        _ => unreachable!("for the initiator"),
    }
}

fn receive_request(script: &Script, state: &mut State, op: OpId) {
    let target = &mut state.target;
    // Otherwise a notice goes out under the reserved key, which is one that anybody could make.
    if script.op(op).key != target.key {
        return;
    }
    let done = script.op(op).done.and_then(|done| state.initiator.names[usize::from(done)]);
    done.into_iter().for_each(|name| target.records.release(name));
    if script.op(op).takes_post() && target.queue.posted == 0 {
        target.note_not_ready();
        state.network.send(Frame::NotReady { op });
        return;
    }
    let Some(place) = target.place_for_request(script) else {
        state.network.send(Frame::Nack { op });
        return;
    };
    let early = script.has(Flaw::PostBoundAtHopOne) && script.op(op).takes_post();
    let post = if early { target.queue.bind() } else { Post::Unbound };
    target.entries[place] = Some(Entry {
        op,
        revision: target.revision,
        solicitation: None,
        parked: false,
        age: 0,
        arrived: 0,
        record: None,
        post,
    });
}
