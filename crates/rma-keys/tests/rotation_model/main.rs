//! Rotation, explored: every order of every step of an owner, two clients of its region, and a
//! network that loses frames and forges notices, within small bounds.
//!
//! What is stepped is what ships: [`rma_keys::rotation::Rotation`] over a
//! [`rma_keys::service::Service`], and two [`rma_keys::cache::GrantCache`]s with their rings. Of
//! the world around them the model has this, and nothing else:
//!
//! | model | stands for |
//! |---|---|
//! | `World::responder` | the region table's key; an op is OK if it is under that, and refused if not |
//! | `Driving`, `Action::Drive` | a driver: one Rekey or probe at a time |
//! | `How::LostBefore`, `LostAfter` | TIMEOUT of an op that took no effect, or did: lost in hop 1, 2 or 3, or in hop 4. That it takes none afterwards (P2) is the other model's, of the four hops |
//! | `How::Forged` | a REMOTE_AUTHENTICATION_FAILURE from whoever sees the request; the op was stopped |
//! | `Action::Fetch`, `Answer`, `Lose` | a request that is answered when it arrives; the answer may be late, or never come |
//! | `Action::Tick` | time, to the next moment at which somebody does something of himself |
//!
//! A state is the history that led to it; two are one if the machines, and what is under way, are
//! alike to the last field.

mod script;
mod world;

use core::hash::{Hash, Hasher};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::Arc;

use rma_keys::rotation::Way;
use rma_lab::evidence;
use stateright::{Checker, HasDiscoveries, Model, Property};

use crate::{
    script::{Flaw, Script},
    world::{Action, World},
};

/// The steps that led somewhere, the last first.
type Steps = Option<Arc<(Action, Past)>>;

#[derive(Clone, Debug)]
struct Past(Steps);

/// A world, by its history.
#[derive(Clone, Debug)]
struct State {
    past: Past,
    digest: u64,
}

impl Hash for State {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.digest.hash(state);
    }
}

impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl Script {
    fn world(&self, state: &State) -> World {
        let mut steps = Vec::new();
        let mut past = &state.past;
        while let Some(step) = &past.0 {
            steps.push(step.0);
            past = &step.1;
        }
        let mut world = World::new(*self);
        steps.into_iter().rev().for_each(|action| world.step(action));
        world
    }
}

const KNOWN: &str = "the catalog has the key that the responder goes by";
const FORWARD: &str = "no client goes back to a key from before one that was right";
const CHEAP: &str = "a forged notice or a rotation costs a call two retries at most";
const BRIEF: &str = "the owner tries each step once, and twice more for each that was disturbed";
const SHUT: &str = "who is shut out has no key of an epoch that began afterwards";
const ENDS: &str = "where nothing can happen any more, all calls and rotations are over";

impl Model for Script {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State { past: Past(None), digest: World::new(*self).digest() }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.world(state).actions(actions);
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut world = self.world(state);
        world.step(action);
        let past = Past(Some(Arc::new((action, state.past.clone()))));
        Some(State { past, digest: world.digest() })
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(KNOWN, |it: &Self, state| it.world(state).catalog_knows()),
            Property::always(FORWARD, |it: &Self, state| it.world(state).goes_forward()),
            Property::always(CHEAP, |it: &Self, state| it.world(state).is_cheap()),
            Property::always(BRIEF, |it: &Self, state| it.world(state).is_brief()),
            Property::always(SHUT, |it: &Self, state| it.world(state).is_shut()),
            Property::always(ENDS, |it: &Self, state| {
                let mut actions = Vec::new();
                it.world(state).actions(&mut actions);
                !actions.is_empty() || it.world(state).is_over()
            }),
        ]
    }
}

/// Two clients, a rotation on command by the owner's host, and a forged notice.
const REACTIVE: Script = Script {
    way: Way::Host,
    calls: [1, 1],
    rotations: 1,
    withdraws: false,
    ticks: 0,
    forged: 1,
    lost: 0,
    flaw: None,
};

/// A Rekey whose outcome may be unknown.
const BY_REKEY: Script = Script { way: Way::Rekey, calls: [1, 0], forged: 2, lost: 2, ..REACTIVE };

/// A next key that is announced for its time, with forged notices.
const PROACTIVE: Script = Script { rotations: 0, ticks: 2, forged: 2, ..REACTIVE };

/// One of two clients is shut out, perhaps while a Rekey is unknown.
const WITHDRAWAL: Script =
    Script { way: Way::Rekey, calls: [0, 1], withdraws: true, forged: 1, lost: 1, ..REACTIVE };

/// Explores all that `script` allows, and holds each state against the promises. A model that has
/// become smaller by accident stays below the `floor` of unique states.
fn explore(what: &str, script: Script, floor: usize) {
    static EXPLORED: AtomicUsize = AtomicUsize::new(0);
    let checker = script.checker().threads(2).spawn_bfs().join();
    let states = checker.unique_state_count();
    let explored = EXPLORED.fetch_add(states, Relaxed) + states;
    evidence::show(format_args!(
        "model of rotation, {what}: {states} unique states, {} steps, depth {}; {explored} states \
         up to now",
        checker.state_count(),
        checker.max_depth()
    ));
    checker.assert_properties();
    assert!(states >= floor, "{what}: {states} unique states, fewer than {floor}");
}

/// Shows that a mistake breaks a promise, and how.
fn breaks(script: Script, flaw: Flaw, promise: &'static str) {
    let found = HasDiscoveries::AnyOf([promise].into());
    let checker = script.with(flaw).checker().finish_when(found).spawn_bfs().join();
    let steps = checker.assert_any_discovery(promise).into_actions();
    println!("{flaw:?}, {promise}:");
    steps.iter().for_each(|step| println!("    {step:?}"));
}

#[test]
fn a_rotation_on_command_keeps_all_promises() {
    explore("on command", REACTIVE, 5_500);
}

#[test]
fn a_rekey_of_which_nobody_knows_the_outcome_keeps_all_promises() {
    explore("by Rekey", BY_REKEY, 7_500);
}

#[test]
fn a_key_that_is_announced_keeps_all_promises() {
    explore("announced", PROACTIVE, 150_000);
}

#[test]
fn a_withdrawal_keeps_all_promises() {
    explore("withdrawal", WITHDRAWAL, 6_000);
}

#[test]
fn a_timeout_taken_for_success_leaves_the_catalog_without_the_right_key() {
    breaks(BY_REKEY, Flaw::TimeoutIsOk, KNOWN);
}

#[test]
fn a_refusal_that_is_believed_makes_an_owner_try_for_ever() {
    breaks(BY_REKEY, Flaw::RefusalIsNack, BRIEF);
}

#[test]
fn a_withdrawal_that_installs_what_is_announced_shuts_nobody_out() {
    let script = Script { ticks: 3, rotations: 0, forged: 0, lost: 0, ..WITHDRAWAL };
    breaks(script, Flaw::WithdrawnByRotation, SHUT);
}

#[test]
fn a_client_that_learns_nothing_from_success_goes_back() {
    breaks(Script { calls: [2, 0], ..BY_REKEY }, Flaw::OkUntold, FORWARD);
}

#[test]
fn a_client_that_drops_a_key_for_a_notice_pays_for_it_until_the_swap() {
    breaks(PROACTIVE, Flaw::DropsOnNotice, CHEAP);
}

#[test]
fn a_client_that_is_not_told_of_a_lost_fetch_waits_for_ever() {
    let script = Script { calls: [1, 0], rotations: 0, lost: 1, ..REACTIVE };
    breaks(script, Flaw::LossUntold, ENDS);
}
