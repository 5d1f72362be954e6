//! The actions of the attacker. Each panics if he gets anything by it.

use std::collections::BTreeSet;

use rma_core::{backend::Backend, port::Port};
use rma_sim::prng::Prng;
use rma_star::{
    config::{STATEFUL_PORT, STATELESS_PORT},
    counters::StarDrop,
    verbs::WqeOp,
};

use super::{
    super::lab::End,
    cable::Packet,
    forge::{self, Forger},
    world::World,
};

/// Packets that are sent before anybody looks.
const BURST: usize = 16;

/// Octets of the longest Ethernet frame.
const FRAME_MAX: usize = 1514;

/// The most packets that are played again.
const TAPE: usize = 200;

/// The most copies of a round's frames that come in its midst.
const REPEATS: u64 = 20_000;

impl<B: Backend> World<B> {
    /// Delivers packets, and waits until at least `deaths` frames have died of it at both hosts.
    fn deliver(
        &mut self,
        packets: impl Iterator<Item = Packet>,
        deaths: impl Fn(u64) -> u64,
    ) -> u64 {
        let died = |world: &Self| world.z.dropped() + world.f.dropped();
        let (before, mut sent) = (died(self), 0_u64);
        for packet in packets {
            self.cable.inject(&packet);
            sent += 1;
            if sent.is_multiple_of(BURST as u64) {
                let expected = before + deaths(sent);
                self.until("the end of a packet", |world| died(world) >= expected);
            }
        }
        let expected = before + deaths(sent);
        self.until("the end of the last packet", |world| died(world) >= expected);
        sent
    }

    /// Delivers packets of which each frame must die, with no effect and no answer that only an
    /// authentic frame has.
    fn all_die(&mut self, packets: impl Iterator<Item = Packet>) -> u64 {
        let refused = |world: &Self| world.z.refused() + world.f.refused();
        let before = refused(self);
        let sent = self.deliver(packets, |sent| sent);
        assert_eq!(refused(self), before, "none of them is authentic");
        self.check();
        sent
    }

    /// Delivers what was recorded, and looks at all memory. Returns how many packets.
    pub(super) fn play(&mut self, tape: &[Packet]) -> u64 {
        for packets in tape.chunks(BURST) {
            packets.iter().for_each(|packet| self.cable.inject(packet));
            self.turn();
        }
        self.settle();
        self.check();
        tape.len() as u64
    }
}

/// Frames of each type, length and way, one of each.
fn kinds(tape: &[Packet]) -> Vec<Packet> {
    let mut seen = BTreeSet::new();
    let is_new =
        |it: &&Packet| seen.insert((it.toward, it.octets[1], it.octets[2], it.octets.len()));
    tape.iter().filter(is_new).cloned().collect()
}

const fn other_port(port: Port) -> Port {
    if port.0 == STATELESS_PORT.0 { STATEFUL_PORT } else { STATELESS_PORT }
}

/// Each bit of each frame of a round changes.
///
/// # Panics
/// If one has an effect.
pub fn each_bit<B: Backend>(world: &mut World<B>) -> u64 {
    let tape = world.record_round();
    let mut sent = 0;
    for packet in kinds(&tape) {
        let changed = (0..8 * packet.octets.len()).map(|bit| {
            let mut octets = packet.octets.clone();
            octets[bit / 8] ^= 1 << (bit % 8);
            packet.with(octets)
        });
        sent += world.all_die(changed);
    }
    world.round();
    sent
}

/// Frames come cut, stretched, at the other port, and back to whoever has sent them; others are
/// made up, or are sealed under keys that are guessed.
///
/// # Panics
/// If one has an effect.
pub fn no_keys<B: Backend>(world: &mut World<B>, prng: &mut Prng) -> u64 {
    let tape = kinds(&world.record_round());
    let mut sent = 0;
    for packet in &tape {
        let whole = &packet.octets;
        let cut = (1..whole.len()).map(|len| packet.with(whole[..len].to_vec()));
        sent += world.all_die(cut);
        let elsewhere = packet.to_port(other_port(packet.port));
        sent += world.all_die(core::iter::once(elsewhere));
        let time = world.z_time();
        let guesses: Vec<_> = (0..8).filter_map(|_| forge::guessed(whole, time, prng)).collect();
        sent += world.all_die(guesses.into_iter().map(|octets| packet.with(octets)));
    }
    // The frame itself dies or has had its effect; what is behind it dies.
    let stretched: Vec<_> = tape
        .iter()
        .flat_map(|packet| {
            [1, 16, 64].map(|more| packet.with([&packet.octets[..], &vec![7; more]].concat()))
        })
        .filter(|packet| packet.frame.len() <= FRAME_MAX)
        .collect();
    sent += world.deliver(stretched.into_iter(), |sent| sent);
    // Whoever has no key can refuse whatever comes by, and it ends nothing.
    world.begin_round();
    for _ in 0..20 {
        world.turn();
    }
    let refusals: Vec<_> = tape
        .iter()
        .chain(&world.cable.tape)
        .flat_map(|packet| packet.frames().into_iter().map(move |frame| (packet, frame)))
        .filter_map(|(packet, frame)| {
            // Back to whoever has sent it.
            let toward = packet.toward.other();
            let like = tape.iter().find(|it| it.toward == toward)?;
            Some(like.with(forge::refusal(frame)?))
        })
        .collect();
    sent += refusals.len() as u64;
    refusals.iter().for_each(|packet| world.cable.inject(packet));
    world.finish_round();
    sent
}

/// Each frame comes again at each later point: behind every other one of its round, after it, after
/// its connection was closed, in the next one that uses its slots, and when clocks have gone round.
///
/// # Panics
/// If one has an effect.
pub fn each_frame_again<B: Backend>(world: &mut World<B>) -> u64 {
    world.cable.tape.clear();
    world.cable.repeats_left = REPEATS;
    world.round();
    world.cable.repeats_left = 0;
    world.settle();
    let mut tape = core::mem::take(&mut world.cable.tape);
    tape.truncate(TAPE);
    let mut sent = world.cable.repeated;
    let mut again = |world: &mut World<B>| sent += world.play(&tape);
    again(world);
    world.round();
    again(world);
    world.connect_anew();
    let before = world.z.refused();
    again(world);
    assert!(world.z.refused() > before, "authentic frames of a connection that is no more");
    world.round();
    again(world);
    world.rest();
    world.let_clocks_go_round();
    let (before, dead) = (world.z.refused(), world.z.counters().drops(StarDrop::Unauthenticated));
    world.cable.tape.clear();
    again(world);
    // F's own frames may be: its view of Z's clock lags after so long.
    let from_f = world.cable.tape.iter().filter(|it| it.toward == End::B);
    let from_f: usize = from_f.map(|it| it.frames().len()).sum();
    let refused = world.z.refused() - before;
    assert!(
        refused <= from_f as u64,
        "{refused} frames refused: what is that old is not authentic"
    );
    assert!(world.z.counters().drops(StarDrop::Unauthenticated) > dead);
    world.round();
    again(world);
    world.round();
    sent
}

/// Honest applications go on in a flood of garbage, and in one of WRITEs that somebody may do.
///
/// # Panics
/// If they do not, or a byte changes that is not for it.
pub fn floods<B: Backend>(world: &mut World<B>, prng: &mut Prng) -> u64 {
    const ROUNDS: usize = 5;
    let tape = world.record_round();
    let mut sent = 0;
    let toward = |end| tape.iter().find(|it| it.toward == end).expect("frames both ways").clone();
    let likes = End::BOTH.map(toward);
    for _ in 0..ROUNDS {
        world.begin_round();
        world.until("a round in a flood of garbage", |world| {
            for _ in 0..BURST {
                let mut octets = vec![0; prng.between(1, 300) as usize];
                prng.fill(&mut octets);
                if octets.len() > 2 && prng.below(2) == 0 {
                    octets[..2].copy_from_slice(&[1, 0x21 + prng.below(9) as u8]);
                }
                world.cable.inject(&prng.choose(&[&likes[0], &likes[1]]).with(octets));
                sent += 1;
            }
            world.is_round_done()
        });
        world.finish_round();
    }
    let mut forger = Forger::new(world.bait.binding(1, 1));
    let mr = world.bait.mr;
    let key = forger.key_of_mr(&world.bait.schedule, WqeOp::Write, mr);
    world.bait.memory.expect(4096, 1024, 0x77);
    let mut written = Vec::new();
    for _ in 0..ROUNDS {
        world.begin_round();
        world.until("a round in a flood of WRITEs", |world| {
            let expiry = world.soon();
            for at in 0..BURST as u64 {
                let own = forge::own(WqeOp::Write, mr, 4096 + 64 * at, 64);
                let guide = forger.guide(&own, (0, 64), expiry);
                let frame = likes[1].with(forge::rd(&key, guide, 0x77, false, expiry));
                world.cable.inject(&frame);
                sent += 1;
                if written.len() < BURST {
                    written.push(frame);
                }
            }
            world.is_round_done()
        });
        world.until("its data", |world| world.bait.bytes(4096, 1024) == [0x77; 1024]);
        world.finish_round();
    }
    world.settle();
    // None lands again, in time or not.
    world.bait.memory.fill(4096, 1024, 0);
    written.iter().for_each(|packet| world.cable.inject(packet));
    world.settle();
    world.check();
    world.round();
    sent
}
