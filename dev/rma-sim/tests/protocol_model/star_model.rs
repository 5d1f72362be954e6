//! StaR's protocol, explored: every order of every step of a stateless side Z, a stateful side F
//! and a network that belongs to an attacker, within small bounds.
//!
//! Two models, not shipped code: they show that the *protocol* keeps its promises, and which rule
//! keeps which of them. That the code follows the protocol is the simulator's to show. Whoever
//! changes one changes the other.
//!
//! [`data_path`] is about work requests: S1 (bounded), S2 (no late effect), S3 (exactly once) and
//! S5 (authorised). [`switch`] is about a connection whose roles change: S6 (nothing is lost or
//! doubled).

mod data_path;
mod switch;

use core::fmt::Debug;
use core::hash::Hash;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use rma_lab::evidence;
use stateright::{Checker, HasDiscoveries, Model};

/// The world at one moment, for the checker.
trait World: Clone + Debug + Hash + PartialEq + Send + Sync + 'static {}

impl<T: Clone + Debug + Hash + PartialEq + Send + Sync + 'static> World for T {}

/// One step, for the checker.
trait Step: Clone + Debug + PartialEq + Send + Sync + 'static {}

impl<T: Clone + Debug + PartialEq + Send + Sync + 'static> Step for T {}

/// Explores all that `model` allows, and holds each state against the promises. A model that has
/// become smaller by accident stays below the `floor` of unique states.
fn explore<M>(what: &str, model: M, floor: usize)
where
    M: Model<State: World, Action: Step> + Send + Sync + 'static,
{
    static EXPLORED: AtomicUsize = AtomicUsize::new(0);
    let checker = model.checker().spawn_bfs().join();
    let states = checker.unique_state_count();
    let explored = EXPLORED.fetch_add(states, Relaxed) + states;
    evidence::show(format_args!(
        "model of StaR, {what}: {states} unique states, {} steps, depth {}; {explored} states up \
         to now",
        checker.state_count(),
        checker.max_depth()
    ));
    checker.assert_properties();
    assert!(states >= floor, "{what}: {states} unique states, fewer than {floor}");
}

/// Shows that `model`, which makes the mistake `what`, breaks a promise, and how.
fn breaks<M>(what: impl Debug, model: M, promise: &'static str)
where
    M: Model<State: World, Action: Step> + Send + Sync + 'static,
{
    let found = HasDiscoveries::AnyOf([promise].into());
    let checker = model.checker().finish_when(found).spawn_bfs().join();
    let path = checker.assert_any_discovery(promise);
    let steps = path.into_actions();
    evidence::show(format_args!(
        "model of StaR, mistake {what:?}: breaks in {} steps \"{promise}\"",
        steps.len()
    ));
    println!("{what:?}, {promise}:");
    steps.iter().for_each(|step| println!("    {step:?}"));
}
