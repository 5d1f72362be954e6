//! A sender that stops between its reservation and its message, on a channel that eight share: what
//! the others see, by virtual time.
//!
//! Each sends one message in each interval. One of them does not look any more once its reservation
//! is made: it has a place, and does not know. Its host goes on, and crashes a little later
//! if it is to die; otherwise it looks again after the recovery, and writes. What must hold of all
//! messages meanwhile is checked after every event, as in all runs.

use core::{fmt, time::Duration};

use rma_channel::{
    Kind,
    shared_ring::{SharedRingConfig, sender},
    write_slot::reserve_slot::{self, ReserveConfig},
};
use rma_core::{nic::Timing, op::OpType, time::Instant};
use rma_sim::{
    hosts::options::NetworkOptions,
    net::{frame::NodeId, node::Pace},
    prng::Prng,
};

use super::{
    hosts::Driven as _,
    kinds::{ROWS, Row, Settings},
    run::Run,
    simulated::World,
    stream::Lens,
};

/// The number of senders that share a channel.
pub const SENDERS: usize = 8;

/// The channels whose senders reserve before they write.
pub const KINDS: [Kind; 3] =
    [Kind::WriteSlotReserve, Kind::SharedRingImmediate, Kind::SharedRingWithZeroing];

/// The fate of the sender that stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Its host crashes.
    Dies,
    /// It looks again, so long after the recovery at least.
    Sleeps(Duration),
}

/// A channel, and what happens to it.
#[derive(Clone, Debug)]
pub struct Scene {
    /// The channel.
    pub kind: Kind,
    /// The fate of the sender that stops.
    pub fate: Fate,
    /// The sender that stops.
    pub who: usize,
    len: u32,
    /// How many messages the ring has room for; or slots.
    room: u64,
    /// Intervals until it stops, and in the time until the hole is taken back.
    intervals: (u64, u64),
    network: NetworkOptions,
}

/// The times of the events. Times are since the beginning.
#[derive(Clone, Debug)]
pub struct Timeline {
    /// How long an interval is.
    pub interval: Duration,
    /// By interval, and by sender: how many messages came.
    pub came: Vec<[u64; SENDERS]>,
    /// When the sender had a place, and stopped.
    pub stopped: Duration,
    /// When the receiver saw the hole.
    pub seen: Duration,
    /// When the receiver took the hole back and began the next epoch.
    pub recovered: Duration,
    /// When the last of the living senders had gone on: its first message in that epoch had come.
    pub gone_on: Duration,
    /// When the sender that slept looked again.
    pub woke: Option<Duration>,
    /// How long it took from when the hole was seen until all others that have something to send
    /// knew the next epoch, and so could reserve in it.
    pub took: Duration,
    /// The most that it may take.
    pub bound: Duration,
}

impl Scene {
    /// Frames take one microsecond, timing is as NICs have it by default, and it stops in the third
    /// interval.
    pub fn plain(kind: Kind, fate: Fate) -> Self {
        let network = NetworkOptions::exact(SENDERS as u16 + 1);
        let room = if kind == Kind::WriteSlotReserve { SENDERS as u64 } else { 32 };
        Self { kind, fate, who: 3, len: 100, room, intervals: (2, 10), network }
    }

    /// One that `seed` says all of: how long frames take, in which order they come, timing, how
    /// long messages are, how much room there is, who stops, and when. Nothing is lost: an op that
    /// has to be repeated has no bound.
    pub fn drawn(kind: Kind, seed: u64) -> Self {
        let mut prng = Prng::new(seed).fork(0x401e);
        let Self { mut network, .. } = Self::plain(kind, Fate::Dies);
        let delay = Duration::from_nanos(500 + prng.magnitude(20_000));
        network.seed = seed;
        network.link.delay = delay;
        network.link.jitter = delay.mul_f64(prng.choose(&[0.0, 0.3, 1.0, 2.0]));
        let turn = Duration::from_nanos(prng.magnitude(delay.as_nanos() as u64));
        network.pace = prng.choose(&[Pace::Hardware, Pace::Engine { turn }]);
        let turnaround = round_trip(&network) * 2 + Duration::from_micros(60);
        let dispatch = turnaround * prng.between(1, 3) as u32;
        let timeout = dispatch + turnaround * prng.between(2, 5) as u32;
        network.nic.timing = Timing::new(dispatch, timeout);
        network.nic.rtt = turnaround;
        let after = Duration::from_nanos(prng.magnitude(10_000_000));
        let fate = prng.choose(&[Fate::Dies, Fate::Sleeps(after)]);
        let room = match kind {
            Kind::WriteSlotReserve => prng.choose(&[8, 16]),
            _ => prng.choose(&[16, 32, 64]),
        };
        let (who, len) = (prng.below(SENDERS as u64) as usize, prng.choose(&[8, 100, 1000]));
        let intervals = (prng.between(1, 4), prng.between(5, 40));
        Self { kind, fate, who, len, room, intervals, network }
    }

    /// How long a slot or a place may be reserved and empty.
    fn hole_timeout(&self) -> Duration {
        let Timing { dispatch_timeout, timeout, .. } = self.network.nic.timing;
        match self.kind {
            Kind::WriteSlotReserve => ReserveConfig::hole_timeout_min(dispatch_timeout, timeout),
            _ => SharedRingConfig::hole_timeout_min(dispatch_timeout, timeout),
        }
    }

    /// From when the hole is seen until a living sender can reserve in the next epoch, as the
    /// channels promise it. The receiver looks as soon as it is time, and takes no time.
    fn bound(&self) -> Duration {
        // An op that is refused, and one that is not.
        let (wait, round_trips) = match self.kind {
            Kind::WriteSlotReserve => (reserve_slot::SEARCH_MAX, 2 + 2),
            _ => (sender::SEARCH_MAX, 1 + 1),
        };
        self.hole_timeout() + wait + round_trip(&self.network) * round_trips
    }

    /// The op that tells a sender which epoch it is. He has one under way at most.
    fn looks_by(&self) -> OpType {
        if self.kind == Kind::WriteSlotReserve { OpType::CompareSwap } else { OpType::Read }
    }

    /// Has it happen.
    ///
    /// # Panics
    /// If a message of a living sender is lost, doubled or late, or the dead one's comes.
    pub fn run(&self) -> Timeline {
        let row = ROWS.iter().find(|row| row.kind == self.kind);
        Stage::new(self, row.expect("it has senders that reserve")).run()
    }
}

/// The longest that two frames take, in turns of engines too.
fn round_trip(network: &NetworkOptions) -> Duration {
    let turn = match network.pace {
        Pace::Engine { turn } => turn,
        Pace::Hardware => Duration::ZERO,
    };
    (network.link.delay + network.link.jitter + turn * 2) * 2
}

/// A scene while it is played.
struct Stage<'a> {
    scene: &'a Scene,
    run: Run<World>,
    began: Instant,
    interval: Duration,
    came: Vec<[u64; SENDERS]>,
    /// When the receiver saw what it waits for.
    seen: Option<Instant>,
    recovered: Option<Instant>,
    /// Of each sender: its first message of the next epoch, and since when that could go.
    next: [(usize, Option<Instant>); SENDERS],
    /// Of each sender: when that had come, and how long it took him until he knew the epoch.
    gone_on: [Option<(Instant, Duration)>; SENDERS],
    looks: [Look; SENDERS],
}

/// A sender's look for the next epoch.
#[derive(Clone, Copy, Debug)]
struct Look {
    /// How many looks were issued, and how many have found what they were to find.
    issued: u64,
    done: u64,
    /// When the last of them was issued.
    began: Instant,
    /// When the first was done that was issued in the next epoch. One under a key of the last epoch
    /// is refused then.
    knows: Option<Instant>,
}

impl<'a> Stage<'a> {
    fn new(scene: &'a Scene, row: &Row) -> Self {
        let settings = Settings {
            name: 7,
            senders: (0..SENDERS as u16).map(NodeId).collect(),
            receivers: vec![NodeId(SENDERS as u16)],
            len_max: scene.len,
            room: scene.room,
        };
        let mut run = Run::new(row, World::new(scene.network.clone()), &settings);
        run.open(row, &settings, Lens::All(scene.len), 0);
        let began = run.world.now();
        // Long enough for eight that try to get at one word at the same time.
        let interval = scene.hole_timeout() / scene.intervals.1 as u32;
        let interval = interval.max(round_trip(&scene.network) * 40);
        Self {
            scene,
            run,
            began,
            interval,
            came: Vec::new(),
            seen: None,
            recovered: None,
            next: [(0, None); SENDERS],
            gone_on: [None; SENDERS],
            looks: [Look { issued: 0, done: 0, began, knows: None }; SENDERS],
        }
    }

    fn run(mut self) -> Timeline {
        let who = self.scene.who;
        for _ in 0..self.scene.intervals.0 {
            self.pass_interval();
        }
        // It reserves while all others have nothing to do, and looks no more from when its place is
        // taken: that it is, it will be told a hop later.
        while self.run.streams.iter().flat_map(|it| &it.sent).any(|sent| sent.claimed == 0) {
            self.pass_to(self.run.world.now() + self.interval);
        }
        self.run.streams[who].left += 1;
        self.run.look();
        let due = |run: &Run<World>| run.readers[0].end.as_ref().and_then(|end| end.wake_at());
        while due(&self.run).is_none() {
            self.run.step();
            self.observe();
        }
        self.run.streams[who].is_asleep = true;
        let stopped = self.run.world.now();
        let number = self.run.streams[who].sent.len() - 1;
        let node = self.run.streams[who].node;
        self.pass_to(stopped + round_trip(&self.scene.network) * 4);
        if self.scene.fate == Fate::Dies {
            self.run.crash(node);
        }
        while self.others().any(|other| self.gone_on[other].is_none()) {
            self.pass_interval();
        }
        let recovered = self.recovered.expect("nobody goes on before");
        let woke = self.wake((node, number), recovered);
        for _ in 0..2 {
            self.pass_interval();
        }
        self.finish();
        let claimed = self.run.streams[who].sent[number].claimed;
        assert_eq!(claimed, usize::from(woke.is_some()), "{:?}", self.scene);
        while self.came.last().is_some_and(|came| came.iter().sum::<u64>() == 0) {
            self.came.pop();
        }
        let since = |at: Instant| at.since(self.began);
        let gone_on: Vec<_> = self.others().filter_map(|other| self.gone_on[other]).collect();
        let seen = self.seen.expect("it was recovered");
        let lag = gone_on.iter().map(|&(_, lag)| lag).max().unwrap_or_default();
        Timeline {
            interval: self.interval,
            stopped: since(stopped),
            seen: since(seen),
            recovered: since(recovered),
            gone_on: gone_on.iter().map(|&(at, _)| since(at)).max().unwrap_or_default(),
            woke: woke.map(since),
            took: recovered.since(seen) + lag,
            bound: self.scene.bound(),
            came: self.came,
        }
    }

    fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let who = self.scene.who;
        (0..SENDERS).filter(move |&other| other != who)
    }

    /// The one that sleeps looks again: it has a place of the last epoch, writes there, is refused,
    /// and reserves anew. Returns when.
    fn wake(&mut self, (node, number): (NodeId, usize), recovered: Instant) -> Option<Instant> {
        let Fate::Sleeps(after) = self.scene.fate else { return None };
        while self.run.world.now() < recovered + after {
            self.pass_interval();
        }
        let woke = self.run.world.now();
        let before = self.reservations(node);
        self.run.streams[self.scene.who].is_asleep = false;
        while self.run.streams[self.scene.who].sent[number].claimed == 0 {
            self.pass_interval();
        }
        assert!(self.reservations(node) > before, "{:?}: its place was taken back", self.scene);
        Some(woke)
    }

    fn reservations(&self, node: NodeId) -> u64 {
        let counts = self.run.world.network.counts(node);
        counts.of(OpType::FetchAdd).issued + counts.of(OpType::CompareSwap).issued
    }

    /// Each that lives sends one more message, and so much time passes.
    fn pass_interval(&mut self) {
        if self.came.len() > 1000 {
            self.run.fail(&format!("it does not go on: {:?}, {:#?}", self.scene, self.run.streams));
        }
        let end = self.run.world.now() + self.interval;
        let streams = self.run.streams.iter_mut();
        for stream in streams.filter(|it| it.end.is_some() && !it.is_asleep) {
            stream.left += 1;
        }
        self.pass_to(end);
    }

    /// Runs until then, and not longer.
    fn pass_to(&mut self, end: Instant) {
        self.run.look();
        self.observe();
        while self.run.world.now() < end {
            self.run.news_at = self.run.steps;
            self.run.step_until(Some(end));
            self.observe();
        }
    }

    /// All that lives has nothing more to send, and all of it comes.
    fn finish(&mut self) {
        let is_open = |run: &Run<World>| {
            let living = run.streams.iter().filter(|stream| stream.end.is_some());
            let is_done = |sent| run.is_done(sent);
            living.into_iter().any(|it| it.left > 0 || !it.sent.iter().all(is_done))
        };
        while is_open(&self.run) {
            self.run.step();
            self.observe();
        }
        if self.scene.fate != Fate::Dies {
            self.run.check_all_came();
        }
    }

    /// Notes what an event has brought.
    fn observe(&mut self) {
        let now = self.run.world.now();
        let reader = &self.run.readers[0];
        if let Some(error) = reader.ended {
            self.run.fail(&format!("the receiver has ended: {error}"));
        }
        if let Some(error) = self.run.streams.iter().find_map(|stream| stream.broken.as_ref()) {
            self.run.fail(&format!("a sender is told: {error}"));
        }
        if self.recovered.is_none() {
            if reader.recoveries > 0 {
                self.recovered = Some(now);
                self.next = core::array::from_fn(|it| (reader.next[it], None));
            } else {
                let due = reader.end.as_ref().and_then(|end| end.wake_at());
                let due = due.and_then(|due| self.run.world.wake_at(reader.node, due));
                let timeout = self.scene.hole_timeout();
                self.seen =
                    due.map(|due| Instant::from_nanos(due.as_nanos() - timeout.as_nanos() as u64));
            }
        }
        let row = (now.since(self.began).as_nanos() / self.interval.as_nanos()) as usize;
        self.came.resize(self.came.len().max(row + 1), [0; SENDERS]);
        let before: [u64; SENDERS] =
            core::array::from_fn(|it| self.came[..row].iter().map(|row| row[it]).sum());
        for (sender, stream) in self.run.streams.iter().enumerate() {
            let counts = self.run.world.network.counts(stream.node).of(self.scene.looks_by());
            let look = &mut self.looks[sender];
            if look.done < counts.done && self.recovered.is_some_and(|at| at <= look.began) {
                look.knows.get_or_insert(now);
            }
            if look.issued < counts.issued {
                look.began = now;
            }
            (look.issued, look.done) = (counts.issued, counts.done);
            let came = reader.next[sender];
            self.came[row][sender] = came as u64 - before[sender];
            let (number, since) = &mut self.next[sender];
            if self.recovered.is_some() && stream.sent.len() > *number {
                let since = *since.get_or_insert(now);
                if came > *number {
                    // In between it waits for its turn and for room, as ever.
                    let knows = look.knows.expect("who reserves there has asked");
                    self.gone_on[sender].get_or_insert((now, knows.since(since)));
                }
            }
        }
    }
}

impl fmt::Display for Timeline {
    /// A line for each interval, with what happened in it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |at: Duration| format!("{:.3}", at.as_secs_f64() * 1e3);
        writeln!(
            f,
            "| ms | {} | |",
            (1..=SENDERS).map(|it| format!("{it}")).collect::<Vec<_>>().join(" | ")
        )?;
        writeln!(f, "|---|{}---|", "---|".repeat(SENDERS))?;
        let mut events = vec![
            (self.stopped, "one has reserved, and stops"),
            (self.seen, "the receiver sees the hole"),
            (self.recovered, "keys that nobody has; scan; keys of the next epoch"),
            (self.gone_on, "the last of the others has gone on"),
        ];
        let woke = "it wakes up and writes: refused; it reserves again";
        events.extend(self.woke.map(|at| (at, woke)));
        events.sort();
        for (index, came) in self.came.iter().enumerate() {
            let from = self.interval * index as u32;
            let within = |at: Duration| (from..from + self.interval).contains(&at);
            let said = events.iter().filter(|&&(at, _)| within(at));
            let said: Vec<_> = said.map(|&(at, what)| format!("{} {what}", ms(at))).collect();
            let came = came.map(|count| if count == 0 { String::new() } else { count.to_string() });
            writeln!(f, "| {} | {} | {} |", ms(from), came.join(" | "), said.join("; "))?;
        }
        write!(
            f,
            "{} ms from the hole until all others know the next epoch, of {} at most",
            ms(self.took),
            ms(self.bound)
        )
    }
}
