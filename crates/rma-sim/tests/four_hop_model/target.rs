//! The target: pending writes, its window, the region's key and revision.
//!
//! Between the look at the clock and the copy, and between the copy and the next look, it may be
//! stopped for any time; then it does nothing else. All its other steps are atomic.

use crate::{
    initiator::Outcome,
    model::State,
    network::Frame,
    script::{
        ENTRIES_MAX, FIRST_KEY, Flaw, GRANULES_MAX, Key, OPS_MAX, OpId, SOLICITATIONS_MAX, Script,
        SolicitationId,
    },
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
}

/// A hop 2 that was sent: what its IV stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Solicitation {
    /// Whose hop 1 it answers.
    pub(crate) op: OpId,
    /// The pending index it names.
    index: u8,
}

/// A frame of data that has passed all checks, on its way into the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Landing {
    index: u8,
    op: OpId,
    granule: u8,
    pub(crate) copied: bool,
    /// Whether the op had been reported as failed when its granule was copied.
    late: bool,
    /// Ticks for which the target has been stopped.
    paused: u8,
}

/// What happened to the region, as one sees who sees all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Effects {
    /// One bit for each granule of each op that was copied.
    pub(crate) applied: [u8; OPS_MAX],
    /// A granule was copied a second time.
    pub(crate) twice: bool,
    /// Data of one op went where another op's belongs.
    pub(crate) astray: bool,
    /// Data was copied that had come under a key which is the region's no more.
    pub(crate) under_old_key: bool,
    /// A key that had been replaced came back.
    pub(crate) key_returned: bool,
    /// Data was copied after its op had been reported as failed.
    pub(crate) late: bool,
    /// The same, and it was not counted.
    pub(crate) late_in_silence: bool,
    /// The counter of late effects, as far as it matters.
    pub(crate) late_counted: bool,
    /// One bit for each key that was replaced.
    replaced: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Target {
    pub(crate) entries: [Option<Entry>; ENTRIES_MAX],
    /// All hops 2 that were ever sent.
    pub(crate) solicitations: [Solicitation; SOLICITATIONS_MAX],
    pub(crate) solicited: u8,
    pub(crate) landing: Option<Landing>,
    /// Granules of window in use.
    pub(crate) debited: u8,
    pub(crate) key: Key,
    revision: u8,
    pub(crate) driver_rekeyed: bool,
    pub(crate) restarted: bool,
    pub(crate) effects: Effects,
}

impl Target {
    pub(crate) const NEW: Self = Self {
        entries: [None; ENTRIES_MAX],
        solicitations: [Solicitation { op: 0, index: 0 }; SOLICITATIONS_MAX],
        solicited: 0,
        landing: None,
        debited: 0,
        key: FIRST_KEY,
        revision: 0,
        driver_rekeyed: false,
        restarted: false,
        effects: Effects {
            applied: [0; OPS_MAX],
            twice: false,
            astray: false,
            under_old_key: false,
            key_returned: false,
            late: false,
            late_in_silence: false,
            late_counted: false,
            replaced: 0,
        },
    };

    fn entry(&self, index: u8) -> Option<Entry> {
        self.entries[usize::from(index)]
    }

    pub(crate) fn may_solicit(&self, script: &Script, index: u8) -> bool {
        self.entry(index).is_some_and(|entry| entry.solicitation.is_none())
            && !self.is_outdated(script, index)
            && self.solicited < script.solicitations
            // As for reads: what is free must do for an op of the largest size.
            && script.window - self.debited >= GRANULES_MAX
    }

    /// Sends hop 2 of an entry that waits.
    pub(crate) fn solicit(&mut self, script: &Script, index: u8) -> Frame {
        let by = self.solicited;
        let entry = self.entries[usize::from(index)].as_mut().expect("may_solicit was asked");
        entry.solicitation = Some(by);
        self.solicitations[usize::from(by)] = Solicitation { op: entry.op, index };
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

    /// Data came under a key that was replaced: nothing of it is copied, and after the last of it
    /// hop 4 says so.
    fn discard(&mut self, script: &Script, index: u8, granule: u8) -> Option<Frame> {
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
        Some(Frame::Acknowledgement { by, ok: false })
    }

    /// An entry ends, and with it what it debited.
    fn remove(&mut self, script: &Script, index: u8) -> Entry {
        let entry = self.entries[usize::from(index)].take().expect("the caller saw it");
        if entry.solicitation.is_some() && !entry.parked {
            self.debited -= script.op(entry.op).granules();
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

    /// The process ends and another begins, and registers the region under the key that it has.
    pub(crate) fn restart(&mut self) {
        self.entries = [None; ENTRIES_MAX];
        self.debited = 0;
        self.restarted = true;
    }

    /// Bytes that the entries should have debited.
    pub(crate) fn in_service(&self, script: &Script) -> u8 {
        let solicited = self.entries.iter().flatten();
        let solicited = solicited.filter(|entry| entry.solicitation.is_some() && !entry.parked);
        solicited.map(|entry| script.op(entry.op).granules()).sum()
    }
}

/// Hops 1 and 3.
pub(crate) fn receive(script: &Script, state: &mut State, frame: Frame) {
    match frame {
        Frame::Request { op } => receive_request(script, state, op),
        Frame::Data { op, by, granule } => receive_data(script, state, op, by, granule),
        _ => unreachable!("for the initiator"),
    }
}

fn receive_request(script: &Script, state: &mut State, op: OpId) {
    let target = &mut state.target;
    // Otherwise a notice goes out under the reserved key, which is one that anybody could make.
    if script.op(op).key != target.key {
        return;
    }
    let entries = &mut target.entries[..usize::from(script.entries)];
    // Who is parked is forgotten where there is no free entry.
    let parked = |entry: &Option<Entry>| entry.is_some_and(|entry| entry.parked);
    let place = entries.iter().position(Option::is_none).or(entries.iter().position(parked));
    match place {
        Some(place) => {
            let revision = target.revision;
            let (solicitation, parked) = (None, false);
            entries[place] = Some(Entry { op, revision, solicitation, parked, age: 0, arrived: 0 });
        }
        None => state.network.send(Frame::Nack { op }),
    }
}

fn receive_data(script: &Script, state: &mut State, op: OpId, by: SolicitationId, granule: u8) {
    let index = state.target.solicitations[usize::from(by)].index;
    let Some(entry) = state.target.entry(index) else { return };
    let given_away = script.has(Flaw::LandsInAnothersEntry) && entry.solicitation != Some(by);
    let Some(expected) = entry.solicitation.or(given_away.then_some(by)) else { return };
    let generations = state.initiator.generations;
    let header = script.op(op).slot == script.op(entry.op).slot
        && generations[usize::from(op)] == generations[usize::from(entry.op)];
    let bound = expected == by || script.has(Flaw::HopThreeNotBound);
    let authentic = bound && script.op(op).same_key(script.op(entry.op));
    let repeated = entry.arrived & 1 << granule != 0 && !script.has(Flaw::NoArrivalBits);
    if !given_away && (!header || !authentic) || repeated {
        return;
    }
    if state.target.is_outdated(script, index) {
        if let Some(frame) = state.target.discard(script, index, granule) {
            state.network.send(frame);
        }
        return;
    }
    // The look at the clock.
    if entry.age >= script.deadline() && !script.has(Flaw::NoCheckBeforeCopy) {
        return;
    }
    let landing = Landing { index, op, granule, copied: false, late: false, paused: 0 };
    state.target.landing = Some(landing);
    let completes = (entry.arrived | 1 << granule) == script.op(entry.op).all();
    if completes && script.has(Flaw::AcknowledgedBeforeCopy) {
        state.network.send(Frame::Acknowledgement { by: expected, ok: true });
    }
}

/// The copy: a granule changes the region, or the new key its row.
pub(crate) fn copy(script: &Script, state: &mut State) {
    let target = &mut state.target;
    let landing = target.landing.as_mut().expect("a frame is landing");
    let entry = target.entries[usize::from(landing.index)].expect("its entry stays till then");
    let op = script.op(landing.op);
    let effects = &mut target.effects;
    let applied = &mut effects.applied[usize::from(landing.op)];
    effects.twice |= *applied & 1 << landing.granule != 0;
    *applied |= 1 << landing.granule;
    effects.astray |= entry.op != landing.op;
    effects.under_old_key |= op.key != target.key;
    landing.late = match state.initiator.outcomes[usize::from(landing.op)] {
        None | Some(Outcome::Ok | Outcome::Lost) => false,
        Some(Outcome::Timeout | Outcome::AuthenticationFailure | Outcome::Nack) => true,
    };
    effects.late |= landing.late;
    landing.copied = true;
    if let Some(to) = op.rekey_to {
        target.rekey(to);
    }
}

/// The look at the clock after the copy, and hop 4 if it was the last.
pub(crate) fn look_again(script: &Script, state: &mut State) {
    let target = &mut state.target;
    let landing = target.landing.take().expect("a frame is landing");
    let entry = target.entries[usize::from(landing.index)].as_mut().expect("it is still there");
    if entry.age >= script.late_from() && !script.has(Flaw::NoLookAfterCopy) {
        target.effects.late_counted = true;
    } else {
        target.effects.late_in_silence |= landing.late;
    }
    entry.arrived |=
        if script.has(Flaw::NoArrivalBits) { entry.arrived + 1 } else { 1 << landing.granule };
    if entry.arrived == script.op(entry.op).all() {
        let Some(by) = target.remove(script, landing.index).solicitation else {
            assert!(script.has(Flaw::LandsInAnothersEntry), "data has come for what waits");
            return;
        };
        state.network.send(Frame::Acknowledgement { by, ok: true });
    }
}
