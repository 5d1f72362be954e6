//! Changes of roles on a wire that an attacker holds (S6): he loses, repeats and holds back what he
//! likes, and plays every frame of a change again at each later point of it and of the next ones.
//!
//! Roles change while messages, WRITEs and READs are under way both ways. Whichever host is which
//! side at the end, what follows works with it.

use rma_core::backend::Backend;
use rma_sim::prng::Chance;
use rma_star::library::SwitchError;

use super::{
    super::faults::{Fault, Faults},
    cable::Packet,
    party::Application,
    world::World,
};
use crate::star::roles::Asks;

/// The most copies of packets that come in the midst of changes.
const REPEATS: u64 = 20_000;

/// The chances of a packet's fates. What is lost costs a timeout.
const FAULTS: Faults = Faults::NONE
    .with(Fault::Drop, Chance::ppm(30_000))
    .with(Fault::Duplicate, Chance::ppm(100_000))
    .with(Fault::Hold, Chance::ppm(50_000));

/// The record of an action.
#[derive(Clone, Copy, Debug, Default)]
pub struct Done {
    /// How often roles have changed.
    pub changes: u32,
    /// Packets that came again.
    pub again: u64,
    /// Packets that were lost.
    pub lost: u64,
}

impl<B: Backend> World<B> {
    /// Whether each host is the stateful side, by what it knows.
    fn are_stateful(&self) -> [Option<bool>; 2] {
        [&self.z.application, &self.f.application].map(|it| it.verbs.is_stateful(it.qp))
    }

    fn ask(&mut self, asks: Asks) {
        for party in [&mut self.z, &mut self.f] {
            let now = party.now();
            let Application { verbs, qp, .. } = &mut party.application;
            let is_stateful = verbs.is_stateful(*qp).expect("it is connected");
            if asks.is_of(is_stateful) {
                let asked = verbs.switch_role(now, *qp);
                assert!(matches!(asked, Ok(()) | Err(SwitchError::UnderWay)), "{asked:?}");
            }
        }
    }

    /// Rounds in each of which somebody asks for a change, until roles have changed often enough.
    fn change_roles(&mut self, asks: Asks, count: u32) {
        let (mut were_stateful, mut changes) = (self.are_stateful(), 0);
        while changes < count {
            self.begin_round();
            self.ask(asks);
            self.pass_until("a round in which roles change", |world| {
                let are_stateful = world.are_stateful();
                // In the midst of a change each host says what it knows.
                if are_stateful == were_stateful.map(|it| it.map(|it| !it)) {
                    (were_stateful, changes) = (are_stateful, changes + 1);
                }
                world.is_round_done()
            });
            self.check();
        }
    }

    /// Turns until all that was asked for has come true or to nothing.
    fn rest_wholly(&mut self) {
        loop {
            let carried = self.cable.carried;
            self.rest();
            if self.cable.carried == carried {
                return;
            }
        }
    }

    /// Plays a recording again, and checks that roles stay as they are.
    fn play_and_look(&mut self, tape: &[Packet]) -> u64 {
        let were_stateful = self.are_stateful();
        let played = self.play(tape);
        assert_eq!(self.are_stateful(), were_stateful, "nobody has asked for a change");
        played
    }
}

/// Roles change again and again, whoever asks: while every packet comes again behind each later
/// one, and on a wire that loses packets, doubles them and has others overtake them. Then all of it
/// comes again: at rest, after another change, in another connection, and when clocks have gone
/// round.
///
/// # Panics
/// If a message is lost, comes twice or is not whole, or roles change that nobody has asked to.
pub fn changes_of_roles<B: Backend>(world: &mut World<B>) -> Done {
    let (lost, repeated) = (world.cable.lost, world.cable.repeated);
    let (mut changes, mut again, mut all) = (0, 0, Vec::new());
    for asks in Asks::ALL {
        for (faults, repeats, count) in [(Faults::NONE, REPEATS, 6), (FAULTS, 0, 16)] {
            world.cable.tape.clear();
            (world.cable.faults, world.cable.repeats_left) = (faults, repeats);
            world.change_roles(asks, count);
            (world.cable.faults, world.cable.repeats_left) = (Faults::NONE, 0);
            world.rest_wholly();
            let tape = core::mem::take(&mut world.cable.tape);
            again += world.play_and_look(&tape);
            world.change_roles(asks, 1);
            world.rest_wholly();
            again += world.play_and_look(&tape);
            world.round();
            changes += count + 1;
            all.extend(tape);
        }
    }
    world.connect_anew();
    again += world.play_and_look(&all);
    world.round();
    world.rest();
    world.let_clocks_go_round();
    again += world.play_and_look(&all);
    world.round();
    let (lost, repeated) = (world.cable.lost - lost, world.cable.repeated - repeated);
    assert!(lost > 0 && repeated > 0, "{lost} packets were lost, {repeated} doubled");
    Done { changes, again: again + repeated, lost }
}
