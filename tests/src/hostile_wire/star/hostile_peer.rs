//! A stateful side that has the real keys of its connection, and no good intentions.

use rma_core::backend::Backend;
use rma_star::{
    clock::ZTime,
    counters::StarEvent,
    keys::OpenSpan,
    names::{Era, Generation, Nonce, Qpn, Slot},
    verbs::WqeOp,
    wire::Guide,
};

use super::{
    super::lab::End,
    cable::Packet,
    forge::{self, Forger},
    party::{SPAN, VALID},
    world::World,
};

/// The fate of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It is not authentic.
    Dies,
    /// It is, and is refused.
    Is(StarEvent),
    /// It is answered, and has no effect.
    Nothing,
}

/// A stateful side that has the real keys of its connection uses each beyond what it is for.
///
/// # Panics
/// If it gets anything by it.
pub fn real_keys<B: Backend>(world: &mut World<B>) -> u64 {
    let tape = world.record_round();
    let like = tape.iter().find(|it| it.toward == End::B).expect("frames to Z").clone();
    let mut attacker = Attacker { forger: Forger::new(world.bait.binding(0, 1)), like, sent: 0 };
    let recv = world.bait.post(0, WqeOp::Recv, (0, 5), 64);
    let send = world.bait.post(0, WqeOp::Send, (1, 5), 512);
    let others = world.bait.post(1, WqeOp::Recv, (2, 5), 1024);
    world.settle();
    attacker.spans(world, &recv);
    attacker.times(world, &recv);
    attacker.memory(world);
    attacker.completions(world, &recv, &others);
    attacker.after_its_end(world, &recv, &send);
    world.round();
    attacker.sent
}

/// The stateful side of the bait's connection.
struct Attacker {
    forger: Forger,
    like: Packet,
    sent: u64,
}

impl Attacker {
    /// Delivers a frame to Z and waits for what it comes to.
    fn expect<B: Backend>(&mut self, world: &mut World<B>, what: &str, octets: Vec<u8>, end: Fate) {
        let count = |world: &World<B>| match end {
            Fate::Dies => world.z.dropped(),
            Fate::Is(event) => world.z.counters().events(event),
            Fate::Nothing => world.cable.carried,
        };
        let (before, completed) = (count(world), world.bait.completed.len());
        world.cable.inject(&self.like.with(octets));
        world.until(what, |world| count(world) > before);
        world.check();
        assert_eq!(world.bait.completed.len(), completed, "{what}");
        self.sent += 1;
    }

    /// An RD under the key of a RECV, of something else.
    fn spans<B: Backend>(&mut self, world: &mut World<B>, recv: &OpenSpan) {
        type Change = fn(&mut Guide);
        let key = self.forger.key_of(&world.bait.schedule, recv);
        let (closed, others_pd) = (world.bait.closed, world.z.application.pd);
        let changes: [(&str, Change); 11] = [
            ("another offset", |it| it.mr_offset += 64),
            ("a longer span", |it| it.wqe_len += 256),
            ("another slot", |it| it.slot = Slot(1)),
            ("another generation", |it| it.generation = Generation(6)),
            ("another op", |it| it.op = WqeOp::Read),
            ("another QP of Z", |it| {
                let connection = &mut it.header.connection;
                connection.qpn_z = Qpn::from_bits(connection.qpn_z.to_bits() + 1);
            }),
            ("another QP of F", |it| {
                let connection = &mut it.header.connection;
                connection.qpn_f = Qpn::from_bits(connection.qpn_f.to_bits() + 1);
            }),
            ("another portal", |it| {
                let connection = &mut it.header.connection;
                connection.qpn_z = Qpn::from_bits(connection.qpn_z.to_bits() - (1 << 20));
            }),
            ("another nonce", |it| it.header.connection.nonce = Nonce(2)),
            ("another era", |it| it.header.connection.era = Era(1)),
            ("F's own op", |it| {
                (it.op, it.slot, it.generation) = (WqeOp::Write, Slot::NONE, Generation(0));
            }),
        ];
        for (what, change) in changes {
            let expiry = world.soon();
            let mut guide = self.forger.guide(recv, (0, 64), expiry);
            change(&mut guide);
            self.expect(world, what, forge::rd(&key, guide, 9, false, expiry), Fate::Dies);
        }
        let expiry = world.soon();
        let mut guide = self.forger.guide(recv, (0, 64), expiry);
        guide.mr = closed;
        self.expect(world, "another MR", forge::rd(&key, guide, 9, false, expiry), Fate::Dies);
        let mut guide = self.forger.guide(recv, (0, 64), expiry);
        guide.header.connection.pd = others_pd;
        self.expect(world, "another PD", forge::rd(&key, guide, 9, false, expiry), Fate::Dies);
        let guide = self.forger.guide(recv, (0, 64), expiry);
        let elsewhere = self.as_from_elsewhere();
        let honest = core::mem::replace(&mut self.like, elsewhere);
        self.expect(world, "another host", forge::rd(&key, guide, 9, false, expiry), Fate::Dies);
        self.like = honest;
    }

    /// A packet as another host of the network would send it.
    fn as_from_elsewhere(&self) -> Packet {
        let mut like = self.like.clone();
        // The last octet of the source address, before that of the destination.
        let headers = like.frame.len() - like.octets.len();
        let is_ipv4 = headers == 14 + 20 + 8;
        let last = if is_ipv4 { 14 + 15 } else { 14 + 23 };
        like.frame[last] = 77;
        like
    }

    /// A frame that comes too late, or says that it may, or is of another turn of the clock.
    fn times<B: Backend>(&mut self, world: &mut World<B>, recv: &OpenSpan) {
        let key = self.forger.key_of(&world.bait.schedule, recv);
        let valid = VALID.as_micros() as u64;
        let now = world.z_time().0;
        for (what, expiry, end) in [
            ("expired", now - 1000, Fate::Is(StarEvent::Expired)),
            ("long expired", now - (1 << 30), Fate::Is(StarEvent::Expired)),
            ("too far ahead", now + 1000 * valid, Fate::Is(StarEvent::Expired)),
            ("of the last turn", now + valid / 2 - (1 << 32), Fate::Dies),
            ("of the next turn", now + valid / 2 + (1 << 32), Fate::Dies),
        ] {
            let expiry = ZTime(expiry);
            let guide = self.forger.guide(recv, (0, 64), expiry);
            self.expect(world, what, forge::rd(&key, guide, 9, false, expiry), end);
        }
    }

    /// F's own WRITEs and READs of what is not for it.
    fn memory<B: Backend>(&mut self, world: &mut World<B>) {
        let denied = Fate::Is(StarEvent::Denied);
        let len = SPAN.end - SPAN.start;
        let (mr, closed) = (world.bait.mr, world.bait.closed);
        let others = world.z.application.mr.id();
        for (what, mr, at) in [
            ("past the end", mr, len - 32),
            ("far past the end", mr, u64::MAX - 64),
            ("not shared", closed, 0),
            ("another application's", others, 0),
        ] {
            for op in [WqeOp::Write, WqeOp::Read] {
                let key = self.forger.key_of_mr(&world.bait.schedule, op, mr);
                let expiry = world.soon();
                let guide = self.forger.guide(&forge::own(op, mr, at, 64), (0, 64), expiry);
                let frame = match op {
                    WqeOp::Write => forge::rd(&key, guide, 9, false, expiry),
                    _ => forge::gd(&key, guide, expiry),
                };
                self.expect(world, what, frame, denied);
            }
        }
    }

    /// Checks that a frame that completes one work request completes no other, and none twice.
    fn completions<B: Backend>(
        &mut self,
        world: &mut World<B>,
        recv: &OpenSpan,
        others: &OpenSpan,
    ) {
        let key_c = self.forger.key(&world.bait.schedule);
        let key_w = self.forger.key_of(&world.bait.schedule, recv);
        for (what, span) in [
            ("another connection's slot", *others),
            ("another use of the slot", OpenSpan { generation: Generation(4), ..*recv }),
            ("a slot without a work request", OpenSpan { slot: Slot(9), ..*recv }),
            ("no slot at all", OpenSpan { slot: Slot(1 << 20), ..*recv }),
        ] {
            let expiry = world.soon();
            let cqep = self.forger.cqep(&key_c, &span, expiry);
            self.expect(world, what, cqep, Fate::Nothing);
        }
        // The frames that it may send: data, and then the end.
        let expiry = world.soon();
        let guide = self.forger.guide(recv, (0, 64), expiry);
        let first = forge::rd(&key_w, guide, 9, false, expiry);
        world.bait.memory.expect(64, 64, 9);
        world.cable.inject(&self.like.with(first.clone()));
        world.until("data", |world| world.bait.bytes(64, 64) == [9; 64]);
        let guide = self.forger.guide(recv, (64, 64), expiry);
        let last = forge::rd(&key_w, guide, 9, true, expiry);
        world.bait.memory.expect(128, 64, 9);
        world.cable.inject(&self.like.with(last.clone()));
        world.until("a completion", |world| world.bait.completed == [0]);
        // The application has its memory back, and both come again.
        world.settle();
        world.bait.memory.fill(64, 256, 0);
        self.expect(world, "data after the end", first, Fate::Nothing);
        self.expect(world, "the end again", last, Fate::Nothing);
        let expiry = world.soon();
        let cqep = self.forger.cqep(&key_c, recv, expiry);
        self.expect(world, "the end by another way", cqep, Fate::Nothing);
        // The slot is used again, elsewhere: its old key opens nothing.
        world.bait.post(0, WqeOp::Recv, (0, 6), 2048);
        world.settle();
        let expiry = world.soon();
        let guide = self.forger.guide(recv, (0, 64), expiry);
        let late = forge::rd(&key_w, guide, 9, false, expiry);
        self.expect(world, "the key of another use", late, Fate::Nothing);
    }

    /// Of a connection that is closed no key is worth anything, nor when its QP has another one.
    fn after_its_end<B: Backend>(
        &mut self,
        world: &mut World<B>,
        recv: &OpenSpan,
        send: &OpenSpan,
    ) {
        let (mr, schedule) = (world.bait.mr, world.bait.schedule.clone());
        let key_of = |forger: &Forger, span| forger.key_of(&schedule, span);
        world.bait.close(&mut world.z, 0);
        for nonce in [2, 3] {
            for op in [WqeOp::Recv, WqeOp::Send, WqeOp::Write, WqeOp::Read] {
                let expiry = world.soon();
                let own = forge::own(op, mr, 64, 64);
                let (span, key) = match op {
                    WqeOp::Recv => (*recv, key_of(&self.forger, recv)),
                    WqeOp::Send => (*send, key_of(&self.forger, send)),
                    _ => (own, self.forger.key_of_mr(&schedule, op, mr)),
                };
                let guide = self.forger.guide(&span, (0, 64), expiry);
                let frame = match op {
                    WqeOp::Recv | WqeOp::Write => forge::rd(&key, guide, 9, false, expiry),
                    _ => forge::gd(&key, guide, expiry),
                };
                self.expect(world, "a closed connection", frame, Fate::Is(StarEvent::Gone));
            }
            let (key, expiry) = (self.forger.key(&schedule), world.soon());
            let cqep = self.forger.cqep(&key, send, expiry);
            self.expect(world, "a closed connection", cqep, Fate::Is(StarEvent::Gone));
            if nonce == 2 {
                world.bait.open(&mut world.z, 0, nonce);
                // Of both connections, with the same slots.
                world.bait.post(0, WqeOp::Recv, (3, 5), 64);
                world.settle();
            }
        }
    }
}
