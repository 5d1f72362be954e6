//! Two hosts at the ends of a cable, and rounds of work between them.

use core::{fmt, time::Duration};

use rma_core::{addr::HostAddr, backend::Backend};
use rma_star::{
    clock::ZTime,
    library::{QpState, RecvWr, Remote, Role, SendWr},
};
use rma_xdp::time::{Clock, TscClock};

use super::{
    super::lab::{End, Namespaces},
    bait::Bait,
    cable::{Cable, Packet},
    party::{Application, FROM, LEN, Party, TO, VALID, WRITTEN},
};

/// How long anything may take on a busy machine before it is called stuck.
const PATIENCE: Duration = Duration::from_secs(60);

/// How far Z's clock is: what frames tell of it goes round soon.
const Z_AHEAD: Duration = Duration::from_micros((3 << 32) - 500_000);

/// Seventy-one minutes: after that what frames tell of a time is the same again.
const CLOCK_TURN: Duration = Duration::from_micros(1 << 32);

/// Turns without anything new after which nothing is on the wire any longer.
const QUIET_TURNS: u32 = 50;

/// Time that passes at once while nothing is on the wire: shorter than any timeout.
const STEP: Duration = Duration::from_millis(VALID.as_millis() as u64 / 8);

/// The stateful host at end A, the stateless one at end B, and all that is between them. Where
/// roles change they have other ones, which is what [`changes`](super::changes) is about.
pub struct World<B> {
    pub(super) z: Party<B>,
    pub(super) f: Party<B>,
    pub(super) cable: Cable,
    pub(super) bait: Bait,
    /// Work requests that are not reported.
    open: usize,
    rounds: u64,
    /// The namespaces of the hosts. Dropped last.
    _namespaces: Namespaces,
}

impl<B> fmt::Debug for World<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").field("rounds", &self.rounds).finish_non_exhaustive()
    }
}

impl<B: Backend> World<B> {
    /// Both hosts, over what `open` opens at each end, with a connection that is ready.
    ///
    /// # Panics
    /// If they do not come so far.
    pub fn new(addresses: [HostAddr; 2], open: impl Fn(&Namespaces, End) -> B) -> Self {
        let namespaces = Namespaces::new();
        let cable = Cable::new(&namespaces);
        let [a, b] = End::BOTH.map(|end| open(&namespaces, end));
        let mut z = Party::new(b, addresses[1], Z_AHEAD, Role::Stateless);
        let f = Party::new(a, addresses[0], Duration::from_secs(7), Role::Stateful);
        let bait = Bait::new(&mut z, addresses[0]);
        let mut world = Self { z, f, cable, bait, open: 0, rounds: 0, _namespaces: namespaces };
        world.connect();
        world
    }

    /// Everybody does what there is to do.
    pub(super) fn turn(&mut self) {
        for at_z in [true, false] {
            self.cable.pump();
            let party = if at_z { &mut self.z } else { &mut self.f };
            party.engine.turn();
            let now = party.now();
            let done = party.application.completions(now);
            assert!(done <= self.open, "each work request is reported once");
            self.open -= done;
        }
        self.bait.turn();
    }

    /// Turns until something holds.
    pub(super) fn until(&mut self, what: &str, mut holds: impl FnMut(&mut Self) -> bool) {
        let clock = TscClock::new();
        while !holds(self) {
            assert!(clock.now().as_nanos() < PATIENCE.as_nanos() as u64, "never: {what}");
            self.turn();
        }
    }

    /// The same; while nothing is on the wire, time passes faster.
    pub(super) fn pass_until(&mut self, what: &str, mut holds: impl FnMut(&mut Self) -> bool) {
        let (mut quiet, mut before) = (0, self.moved());
        self.until(what, |world| {
            let now = world.moved();
            quiet = if now == before { quiet + 1 } else { 0 };
            before = now;
            if quiet == QUIET_TURNS {
                quiet = 0;
                world.z.set_on(STEP);
                world.f.set_on(STEP);
            }
            holds(world)
        });
    }

    /// Changes when something moves on the wire.
    fn moved(&self) -> (u64, u64, u64) {
        (self.z.dropped(), self.f.dropped(), self.cable.carried)
    }

    /// Connects the queue pairs of both applications, over a channel that nobody else sees.
    fn connect(&mut self) {
        let now = self.z.now();
        let qp = self.z.application.qp;
        self.z.application.verbs.connect(now, qp).expect("it is new");
        self.until("a connection", |world| {
            let (z_now, f_now) = (world.z.now(), world.f.now());
            let (z, f) = (&mut world.z.application, &mut world.f.application);
            if let Some(message) = z.verbs.poll_message(z_now, z.qp) {
                f.verbs.handle_message(f_now, f.qp, &message).expect("of the other library");
            }
            if let Some(message) = f.verbs.poll_message(f_now, f.qp) {
                z.verbs.handle_message(z_now, z.qp, &message).expect("of the other library");
            }
            z.is(QpState::Ready) && f.is(QpState::Ready)
        });
    }

    /// Closes the connection, and makes another one, whose slots have been used before.
    pub(super) fn connect_anew(&mut self) {
        for party in [&mut self.z, &mut self.f] {
            let now = party.now();
            let Application { verbs, qp, .. } = &mut party.application;
            verbs.close(now, *qp);
        }
        self.until("the end of a connection", |world| {
            [&world.z, &world.f].iter().all(|it| {
                !it.application.is(QpState::Ready)
                    && it.engine.service().stateful_connections() == 0
            })
        });
        self.z.application.replace_qp(Role::Stateless);
        self.f.application.replace_qp(Role::Stateful);
        self.connect();
    }

    /// Seventy-one minutes pass at once, for both.
    pub(super) fn let_clocks_go_round(&self) {
        self.z.set_on(CLOCK_TURN);
        self.f.set_on(CLOCK_TURN);
    }

    /// Begins a message each way, a WRITE each way, and READs of what was written.
    pub(super) fn begin_round(&mut self) {
        self.rounds += 1;
        let [z, f] = [&mut self.z, &mut self.f].map(|it| &mut it.application.memory);
        let byte = self.rounds as u8 & 0x7f;
        for (memory, byte, others) in [(z, byte, byte | 0x80), (f, byte | 0x80, byte)] {
            memory.fill(FROM, LEN, byte);
            memory.expect(TO, LEN, others);
            memory.expect(WRITTEN, LEN, others);
        }
        let remotes = [&self.f, &self.z].map(|it| it.application.mr.id());
        for (party, mr) in [&mut self.z, &mut self.f].into_iter().zip(remotes) {
            let now = party.now();
            let Application { verbs, qp, mr: own, .. } = &mut party.application;
            let (remote, qp) = (Remote { mr, offset: WRITTEN }, *qp);
            let (data, place) = (own.slice(FROM, LEN), own.slice(TO, LEN));
            verbs.post_recv(now, qp, &RecvWr { wr_id: 1, sge: place }).expect("room");
            verbs.post_send(now, qp, &SendWr::send(2, data)).expect("room");
            verbs.post_send(now, qp, &SendWr::write(3, data, remote)).expect("room");
            verbs.post_send(now, qp, &SendWr::read(4, data, remote)).expect("room");
            self.open += 4;
        }
    }

    pub(super) const fn is_round_done(&self) -> bool {
        self.open == 0
    }

    /// Sees a round to its end, and looks at all memory.
    pub(super) fn finish_round(&mut self) {
        self.until("the end of a round", |world| world.is_round_done());
        self.check();
    }

    /// A round from its beginning to its end, and a look at all memory.
    pub(super) fn round(&mut self) {
        self.begin_round();
        self.finish_round();
    }

    /// All memory is as it should be.
    pub(super) fn check(&self) {
        self.z.application.memory.check();
        self.f.application.memory.check();
        self.bait.memory.check();
    }

    /// Turns until nothing that was sent is valid any longer, and whatever was lost came again.
    pub(super) fn rest(&mut self) {
        let end = self.z.now() + 3 * VALID;
        self.pass_until("a time without work", |world| world.z.now() > end);
        self.settle();
    }

    /// Delivers all that is on the wire, and checks it.
    pub(super) fn settle(&mut self) {
        let (mut quiet, mut before) = (0, self.moved());
        while quiet < QUIET_TURNS {
            self.turn();
            let now = self.moved();
            quiet = if now == before { quiet + 1 } else { 0 };
            before = now;
        }
    }

    /// Records the packets of a round, one packet for each of its frames, so that each can be
    /// attacked by itself.
    pub(super) fn record_round(&mut self) -> Vec<Packet> {
        self.cable.tape.clear();
        self.round();
        let tape = core::mem::take(&mut self.cable.tape);
        let alone = |packet: &Packet| {
            let frames = packet.frames();
            frames.into_iter().map(|it| packet.with(it.to_vec())).collect::<Vec<_>>()
        };
        tape.iter().flat_map(alone).collect()
    }

    /// Z's clock, as frames tell it.
    pub(super) fn z_time(&self) -> ZTime {
        ZTime(self.z.now().as_nanos() / 1000)
    }

    /// When a frame is to expire that is sent now.
    pub(super) fn soon(&self) -> ZTime {
        ZTime(self.z_time().0 + VALID.as_micros() as u64 / 2)
    }
}
