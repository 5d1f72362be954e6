//! The Rekey of a region at a host with three engines, explored: two Rekeys, frames under the keys
//! from before them, engines that stand still between any two steps, and a home that may end.
//!
//! A model, not shipped code: it shows which rule of the rings for keys keeps which promise. The
//! code is the simulator's to check.
//!
//! The home puts a key into the ring of each other engine, changes its own row, and acknowledges
//! when all have taken it out. An engine fetches frames, takes keys, handles what it fetched; an
//! answer that waits is looked at again when it leaves. When the home has ended, the others take
//! what it had put, and then the next of them becomes the home.
//!
//! | model | protocol |
//! |---|---|
//! | `State::acknowledged` | the newest key whose Rekey ended with OK: nothing is served under an older one (P11) |
//! | `Place::Device`, its floor | the newest key whose Rekey had ended with TIMEOUT when the frame came: it is served under no older one, or the effect came late (P2) |
//! | `Step::Pop`, `Step::Install` | what the home sees of a ring, and then the row |
//! | `Step::End` | the home takes no turn any more. Its Rekeys are not acknowledged |
//! | `Step::Asked`, `Step::Move` | the driver's two rounds of questions: what each engine does between two turns |
//! | `Step::Report` | not while keys are being put: that is the guard, and what the home counts |

use rma_lab::evidence;
use stateright::{Checker, HasDiscoveries, Model, Property};

const ENGINES: usize = 3;
const REKEYS: usize = 2;

/// The home, and the one after it. Not in the order in which an engine looks into its rings.
const HOMES: [usize; 2] = [2, 0];

/// How many keys a ring has room for.
const ROOM: usize = 1;

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    /// An engine looks into its rings, and then fetches frames.
    KeysBeforeFetching,
    /// It takes keys after it has handled what it fetched.
    KeysAfterHandling,
    /// The home acknowledges without looking into the rings.
    AcknowledgedAtOnce,
    /// Answers leave whatever has become of the key.
    NotLookedAtAgain,
    /// Whoever gets a Rekey tells the others.
    TwoHomes,
    /// An engine whose ring is full is left out.
    FullRingSkipped,
    /// The initiator may be told TIMEOUT while keys are being put.
    NoGuard,
    /// The next engine becomes the home before all have taken the keys of the one before.
    MovedBeforeTaken,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Idle,
    /// It takes keys, where they come before frames.
    Looked,
    /// It has fetched frames, or is about to, where keys come before them.
    Fetched,
    /// It has taken this key out of a ring.
    Popped(u8),
    Ready,
    Handled,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Rekey {
    Asked,
    /// With this key: the next engine to be told.
    Putting(u8, usize),
    /// It waits to be acknowledged.
    Put(u8),
    /// Its home has ended: nobody will acknowledge it.
    Orphan(u8),
    /// It has ended, or was refused; whether with TIMEOUT.
    Over,
}

/// A frame that has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Frame {
    engine: usize,
    key: u8,
    floor: u8,
}

/// The place of the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Place {
    Away,
    Device(Frame),
    Hands(Frame),
    Waits(Frame),
    Gone,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    /// The key of each engine's row. Later ones are larger.
    keys: [u8; ENGINES],
    /// By receiver and sender.
    rings: [[Vec<u8>; ENGINES]; ENGINES],
    phases: [Phase; ENGINES],
    rekeys: [Rekey; REKEYS],
    /// The engine that each Rekey has begun at.
    begun_at: [usize; REKEYS],
    /// Whether the first home has ended.
    ended: bool,
    /// The engines that the driver has had take their keys since then.
    asked: [bool; ENGINES],
    /// Whether there is another home.
    moved: bool,
    frame: Place,
    last: u8,
    acknowledged: u8,
    reported: u8,
    late: bool,
    old: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// A Rekey begins at its home.
    Begin(usize),
    /// The next engine is told, or the home changes its row.
    Put(usize),
    Acknowledge(usize),
    Report(usize),
    /// The frame comes to an engine, under a key.
    Come(usize, u8),
    Look(usize),
    Fetch(usize),
    Pop(usize),
    Install(usize),
    /// No key is left.
    Keys(usize),
    Handle(usize),
    Leave(usize),
    Rest(usize),
    End,
    Asked(usize),
    Move,
}

#[derive(Clone, Copy, Debug)]
struct Host(Option<Flaw>);

impl Host {
    fn has(self, flaw: Flaw) -> bool {
        self.0 == Some(flaw)
    }

    /// The engine that a Rekey comes to which begins now.
    fn home(self, state: &State, rekey: usize) -> usize {
        let other = self.has(Flaw::TwoHomes) && rekey == 1;
        HOMES[usize::from(state.moved || other)]
    }

    /// Whether this engine has ended, as far as others go by it.
    fn is_left_out(self, state: &State, engine: usize) -> bool {
        has_ended(state, engine)
    }

    /// The phase in which keys are taken, and the one after it.
    fn keys(self) -> [Phase; 2] {
        match self.0 {
            Some(Flaw::KeysBeforeFetching) => [Phase::Looked, Phase::Fetched],
            Some(Flaw::KeysAfterHandling) => [Phase::Handled, Phase::Ready],
            _ => [Phase::Fetched, Phase::Ready],
        }
    }

    /// The phase in which frames are handled.
    fn handles(self) -> Phase {
        match self.0 {
            Some(Flaw::KeysAfterHandling) => Phase::Fetched,
            _ => Phase::Ready,
        }
    }

    /// Whether an engine is in the midst of a Rekey: it does nothing else meanwhile.
    fn puts(self, state: &State, engine: usize) -> bool {
        let mut rekeys = (0..).zip(&state.rekeys);
        rekeys
            .any(|(rekey, it)| matches!(it, Rekey::Putting(..)) && state.begun_at[rekey] == engine)
    }

    fn is_taken(self, state: &State, rekey: usize, key: u8) -> bool {
        let home = state.begun_at[rekey];
        let mut others = (0..ENGINES).filter(|&it| !self.is_left_out(state, it));
        self.has(Flaw::AcknowledgedAtOnce)
            || others.all(|other| !state.rings[other][home].contains(&key))
    }
}

fn has_ended(state: &State, engine: usize) -> bool {
    state.ended && engine == HOMES[0]
}

fn has_room(state: &State, home: usize) -> bool {
    let mut others = (0..ENGINES).filter(|&it| it != home && !has_ended(state, it));
    others.all(|it| state.rings[it][home].len() < ROOM)
}

impl Model for Host {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            keys: [0; ENGINES],
            rings: Default::default(),
            phases: [Phase::Idle; ENGINES],
            rekeys: [Rekey::Asked; REKEYS],
            begun_at: [HOMES[0]; REKEYS],
            ended: false,
            asked: [false; ENGINES],
            moved: false,
            frame: Place::Away,
            last: 0,
            acknowledged: 0,
            reported: 0,
            late: false,
            old: false,
        }]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        for (rekey, it) in state.rekeys.iter().enumerate() {
            match *it {
                Rekey::Asked => {
                    let home = self.home(state, rekey);
                    if !self.puts(state, home) && !has_ended(state, home) {
                        steps.push(Step::Begin(rekey));
                    }
                }
                Rekey::Putting(..) => {
                    steps.push(Step::Put(rekey));
                    if self.has(Flaw::NoGuard) {
                        steps.push(Step::Report(rekey));
                    }
                }
                Rekey::Put(key) => {
                    steps.push(Step::Report(rekey));
                    if self.is_taken(state, rekey, key) {
                        steps.push(Step::Acknowledge(rekey));
                    }
                }
                Rekey::Orphan(_) => steps.push(Step::Report(rekey)),
                Rekey::Over => {}
            }
        }
        self.push_ends(state, steps);
        if state.frame == Place::Away {
            let to = |engine| [0, 1].map(|key| Step::Come(engine, key));
            steps.extend((0..ENGINES).flat_map(to));
        }
        let [at_keys, after_keys] = self.keys();
        for (engine, &phase) in state.phases.iter().enumerate() {
            if self.puts(state, engine) || has_ended(state, engine) {
                continue;
            }
            if let Phase::Popped(_) = phase {
                steps.push(Step::Install(engine));
                continue;
            }
            let waits = matches!(state.frame, Place::Waits(it) if it.engine == engine);
            if waits && matches!(phase, Phase::Idle | Phase::Handled) {
                steps.push(Step::Leave(engine));
            }
            if phase == Phase::Idle && self.has(Flaw::KeysBeforeFetching) {
                steps.push(Step::Look(engine));
            } else if phase == Phase::Idle {
                steps.push(Step::Fetch(engine));
            }
            let fetches_now = self.has(Flaw::KeysBeforeFetching) && phase == Phase::Fetched;
            if fetches_now {
                steps.push(Step::Fetch(engine));
            } else if phase == at_keys {
                let is_empty = state.rings[engine].iter().all(Vec::is_empty);
                steps.push(if is_empty { Step::Keys(engine) } else { Step::Pop(engine) });
            } else if phase == self.handles() {
                steps.push(Step::Handle(engine));
            } else if phase == after_keys {
                steps.push(Step::Rest(engine));
            }
        }
    }

    fn next_state(&self, last: &State, step: Step) -> Option<State> {
        let mut state = last.clone();
        match step {
            Step::Begin(rekey) => {
                let home = self.home(&state, rekey);
                let may = has_room(&state, home) || self.has(Flaw::FullRingSkipped);
                state.rekeys[rekey] = Rekey::Over;
                if may {
                    state.begun_at[rekey] = home;
                    state.last += 1;
                    state.rekeys[rekey] = Rekey::Putting(state.last, 0);
                    self.put(&mut state, rekey);
                }
            }
            Step::Put(rekey) => self.put(&mut state, rekey),
            Step::Acknowledge(rekey) => {
                let Rekey::Put(key) = state.rekeys[rekey] else { return None };
                state.acknowledged = state.acknowledged.max(key);
                state.rekeys[rekey] = Rekey::Over;
            }
            Step::Report(rekey) => match state.rekeys[rekey] {
                // What is still put is put all the same.
                Rekey::Putting(key, _) if state.reported < key => state.reported = key,
                Rekey::Put(key) | Rekey::Orphan(key) => {
                    state.reported = state.reported.max(key);
                    state.rekeys[rekey] = Rekey::Over;
                }
                _ => return None,
            },
            Step::Come(engine, key) => {
                let floor = state.reported;
                state.frame = Place::Device(Frame { engine, key, floor });
            }
            Step::Look(engine) => state.phases[engine] = Phase::Looked,
            Step::Fetch(engine) => {
                if let Place::Device(frame) = state.frame
                    && frame.engine == engine
                {
                    state.frame = Place::Hands(frame);
                }
                let is_last = self.has(Flaw::KeysBeforeFetching);
                state.phases[engine] = if is_last { Phase::Ready } else { Phase::Fetched };
            }
            Step::Pop(engine) => {
                let ring = state.rings[engine].iter_mut().find(|it| !it.is_empty())?;
                state.phases[engine] = Phase::Popped(ring.remove(0));
            }
            Step::Install(engine) => {
                let Phase::Popped(key) = state.phases[engine] else { return None };
                state.keys[engine] = key;
                state.phases[engine] = self.keys()[0];
            }
            Step::Keys(engine) => state.phases[engine] = self.keys()[1],
            Step::Handle(engine) => {
                if let Place::Hands(frame) = state.frame
                    && frame.engine == engine
                {
                    let is_right = frame.key == state.keys[engine];
                    state.frame = if is_right { Place::Waits(frame) } else { Place::Gone };
                }
                let goes_on = self.has(Flaw::KeysAfterHandling);
                state.phases[engine] = if goes_on { Phase::Handled } else { Phase::Idle };
            }
            Step::Leave(engine) => self.leave(&mut state, engine),
            Step::Rest(engine) => state.phases[engine] = Phase::Idle,
            Step::End => self.end(&mut state),
            Step::Asked(engine) => state.asked[engine] = true,
            Step::Move => state.moved = true,
        }
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(P11, |_, state: &State| !state.old),
            Property::always(P2, |_, state: &State| !state.late),
            Property::always(AGREE, |_, state: &State| {
                let is_over = |it: &Rekey| matches!(it, Rekey::Over | Rekey::Asked);
                let mut living = (0..ENGINES).filter(|&it| !has_ended(state, it));
                let is_at_rest = living.clone().all(|it| {
                    state.rings[it].iter().all(Vec::is_empty) && state.phases[it] == Phase::Idle
                }) && state.rekeys.iter().all(is_over);
                !is_at_rest || living.all(|it| state.keys[it] == state.keys[0])
            }),
            Property::sometimes(AGAIN, |_, state: &State| {
                let is_there = state.ended && state.begun_at.contains(&HOMES[1]);
                is_there && state.acknowledged == state.last
            }),
        ]
    }
}

const P11: &str = "P11: nothing is served under a key from before an acknowledged Rekey";
const P2: &str = "P2: what comes after a Rekey's report does not meet the key from before";
const AGAIN: &str = "a Rekey ends with OK though the home from before has ended";
const AGREE: &str = "at rest all engines have the same key";

impl Host {
    fn put(self, state: &mut State, rekey: usize) {
        let Rekey::Putting(key, engine) = state.rekeys[rekey] else { return };
        let home = state.begun_at[rekey];
        if engine == ENGINES {
            // Its own row, last.
            state.keys[home] = key;
            let is_reported = state.reported >= key;
            state.rekeys[rekey] = if is_reported { Rekey::Over } else { Rekey::Put(key) };
            return;
        }
        // Nobody can tell when each of them is, unless a report comes between.
        let end = if self.has(Flaw::NoGuard) { engine + 1 } else { ENGINES };
        for other in engine..end {
            if other == home || self.is_left_out(state, other) {
                continue;
            }
            let ring = &mut state.rings[other][home];
            if ring.len() < ROOM {
                ring.push(key);
            }
        }
        state.rekeys[rekey] = Rekey::Putting(key, end);
    }

    /// The steps around the end of a home.
    fn push_ends(self, state: &State, steps: &mut Vec<Step>) {
        if !state.ended && !state.moved {
            steps.push(Step::End);
        }
        if state.moved || !state.ended {
            return;
        }
        let living = (0..ENGINES).filter(|&it| !has_ended(state, it));
        let is_idle = |&it: &usize| state.phases[it] == Phase::Idle && !self.puts(state, it);
        let has_taken = |&it: &usize| state.rings[it].iter().all(Vec::is_empty);
        let unasked = living.clone().filter(|&it| !state.asked[it]);
        steps.extend(unasked.filter(is_idle).filter(has_taken).map(Step::Asked));
        let all_asked = living.clone().all(|it| state.asked[it]);
        if all_asked || self.has(Flaw::MovedBeforeTaken) {
            steps.push(Step::Move);
        }
    }

    /// The home takes no turn any more: what it had in hand is gone, and what it has put is not.
    fn end(self, state: &mut State) {
        let home = HOMES[0];
        state.ended = true;
        for (rekey, at) in state.rekeys.iter_mut().zip(state.begun_at) {
            if let Rekey::Putting(key, _) | Rekey::Put(key) = *rekey
                && at == home
            {
                *rekey = Rekey::Orphan(key);
            }
        }
        if let Place::Device(it) | Place::Hands(it) | Place::Waits(it) = state.frame
            && it.engine == home
        {
            state.frame = Place::Gone;
        }
    }

    /// The answer of an engine leaves.
    fn leave(self, state: &mut State, engine: usize) {
        let Place::Waits(Frame { key, floor, .. }) = state.frame else { return };
        state.frame = Place::Gone;
        if key == state.keys[engine] || self.has(Flaw::NotLookedAtAgain) {
            state.old |= key < state.acknowledged;
            state.late |= key < floor;
        }
    }
}

#[test]
fn a_rekey_over_three_engines_keeps_its_promises_wherever_they_stand_still() {
    let checker = Host(None).checker().spawn_bfs().join();
    let states = checker.unique_state_count();
    evidence::show(format_args!("model of Rekey over three engines: {states} unique states"));
    checker.assert_properties();
    assert!(states > 50_000, "{states} unique states");
}

#[test]
fn each_rule_of_the_rings_for_keys_is_needed() {
    for (flaw, promise) in [
        (Flaw::KeysBeforeFetching, P2),
        (Flaw::KeysAfterHandling, P2),
        (Flaw::AcknowledgedAtOnce, P11),
        (Flaw::NotLookedAtAgain, P11),
        (Flaw::TwoHomes, P11),
        (Flaw::TwoHomes, AGREE),
        (Flaw::FullRingSkipped, P11),
        (Flaw::FullRingSkipped, AGREE),
        (Flaw::NoGuard, P2),
        (Flaw::MovedBeforeTaken, AGREE),
    ] {
        let found = HasDiscoveries::AnyOf([promise].into());
        let checker = Host(Some(flaw)).checker().finish_when(found).spawn_bfs().join();
        let steps = checker.assert_any_discovery(promise).into_actions();
        evidence::show(format_args!(
            "model of Rekey, mistake {flaw:?}: breaks in {} steps \"{promise}\"",
            steps.len()
        ));
    }
}
