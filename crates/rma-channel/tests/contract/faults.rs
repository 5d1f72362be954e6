//! The contract on networks that lose, repeat, reorder, damage and replay frames, and stop or crash
//! hosts: each message comes once and in order, or its sender is told; and when nothing goes wrong
//! any longer, all of a channel that was not told to be broken comes, and all of one that is set up
//! anew.

use core::time::Duration;
use std::{ops::Range, thread};

use rma_channel::SendState;
use rma_core::time::Instant;
use rma_sim::{hosts::options::NetworkOptions, net::frame::NodeId, prng::Prng};

use rma_contract::{
    hosts::Driven as _,
    kinds::{Row, Settings, rows},
    run::Run,
    simulated::World,
    stream::{Habit, Lens},
};

/// How many networks each kind is tried on, unless RMA_CHANNEL_SEEDS says otherwise.
const SEEDS: u64 = 100;

fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}: it must be a number")))
}

fn seeds() -> Range<u64> {
    if let Some(seed) = variable("RMA_CHANNEL_SEED") {
        return seed..seed + 1;
    }
    let first = variable("RMA_CHANNEL_FIRST").unwrap_or(0);
    first..first + variable("RMA_CHANNEL_SEEDS").unwrap_or(SEEDS)
}

/// The fates of the runs' messages.
#[derive(Debug, Default)]
struct Report {
    messages: u64,
    /// Those that were processed, or accepted if nobody tells that.
    processed: u64,
    /// Those whose senders were told that they were not published.
    failed: u64,
    /// Those of which nobody knows.
    unknown: u64,
    /// Channels that were told to be broken.
    broken: u64,
    /// How often a sender had no room.
    full: u64,
    /// Hosts that crashed and were started again.
    crashes: u64,
    /// Senders that were told that what they were lent was taken back.
    taken_back: u64,
}

impl Report {
    fn take(&mut self, run: &Run<World>) {
        for stream in &run.streams {
            self.full += stream.full;
            for sent in &stream.sent {
                self.messages += 1;
                self.processed += u64::from(run.is_done(sent));
                self.failed += u64::from(sent.is_unpublished());
                let is_failed = matches!(sent.state, SendState::Failed(_));
                self.unknown += u64::from(is_failed && !sent.is_unpublished());
            }
        }
        self.broken += u64::from(run.is_broken());
    }

    const fn add(&mut self, other: &Self) {
        self.messages += other.messages;
        self.processed += other.processed;
        self.failed += other.failed;
        self.unknown += other.unknown;
        self.broken += other.broken;
        self.full += other.full;
        self.crashes += other.crashes;
        self.taken_back += other.taken_back;
    }
}

/// A channel, and how it is used, that `seed` says all of.
fn drawn(row: &Row, seed: u64) -> (Run<World>, Settings, Lens) {
    let mut prng = Prng::new(seed).fork(0xc4a7);
    let longest = row.longest.min(prng.choose(&[8, 100, 500, 4096, 10_000])).max(row.shortest);
    let room = prng.choose(&[1, 2, 4, 16]);
    let (settings, nodes) = row.settings(longest, room, prng.below(2) > 0);
    let options = NetworkOptions::from_seed(seed, nodes)
        .with(|it| it.trace = variable("RMA_CHANNEL_SEED").is_some());
    // Very short ones are not told apart.
    let shortest = row.shortest.max(longest.min(4));
    let lens = prng.choose(&[Lens::All(longest), Lens::Mixed(shortest, longest)]);
    let mut run = Run::new(row, World::new(options), &settings);
    run.about += &format!(
        "\nRMA_CHANNEL_SEED={seed} RMA_CHANNEL_KIND={} cargo test -p rma-channel --test contract faults -- --nocapture",
        row.kind as u8
    );
    run.world.replays = prng.choose(&[0, 0, 0, 1, 4]) as usize;
    (run, settings, lens)
}

/// Stops hosts now and then in about the time that the run takes.
fn draw_pauses(run: &mut Run<World>, prng: &mut Prng) {
    let options = run.world.network.options();
    let (nodes, timeout) = (u64::from(options.nodes), options.nic.timing.timeout);
    let most = prng.choose(&[0, 0, 2, 5]);
    let mut at = run.world.network.now();
    let nanos = |length: Duration| length.as_nanos() as u64;
    for _ in 0..most {
        at = at + Duration::from_nanos(prng.below(2 * nanos(timeout)));
        let length = Duration::from_nanos(prng.magnitude(4 * nanos(timeout)));
        run.world.pauses.push_back((at, NodeId(prng.below(nodes) as u16), length));
    }
}

/// Crashes a host, and starts it again.
fn crash(run: &mut Run<World>, prng: &mut Prng) {
    let options = run.world.network.options();
    let (nodes, timeout) = (u64::from(options.nodes), options.nic.timing.timeout);
    let node = NodeId(prng.below(nodes) as u16);
    run.crash(node);
    run.pass(timeout.mul_f64(prng.choose(&[0.0, 0.1, 1.0, 4.0])));
    run.world.restart(node);
    // Frames of its life before are still on their way.
    run.pass(timeout.mul_f64(prng.choose(&[0.0, 0.1, 1.0])));
}

/// A sender stops with what it was lent, dead or asleep, and that is taken back: before it wakes
/// up, or just after. Says which.
fn take_back(run: &mut Run<World>, prng: &mut Prng) -> usize {
    let timeout = run.world.network.options().nic.timing.timeout;
    let index = prng.below(run.streams.len() as u64) as usize;
    let length = timeout.mul_f64(prng.choose(&[0.1, 1.0, 4.0]));
    let asleep = (prng.below(3) > 0).then_some(length);
    run.take_back(index, asleep, length.mul_f64(prng.choose(&[0.0, 0.5, 0.9, 1.5])));
    if asleep.is_none() {
        run.world.restart(run.streams[index].node);
    }
    index
}

fn draw_habits(run: &mut Run<World>, prng: &mut Prng) {
    for reader in &mut run.readers {
        reader.habit = prng.choose(&[
            Habit::Prompt,
            Habit::Prompt,
            Habit::Slow(3),
            Habit::Slow(20),
            Habit::Holding(1),
            Habit::Holding(2),
        ]);
    }
}

/// Runs one seed: faults first, then none.
fn run_seed(row: &Row, seed: u64) -> Report {
    // Every second one with receivers that read into memory of the application's, if there are.
    let reading = row.reading().filter(|_| !row.prefetches && seed % 2 == 1);
    let row = reading.as_ref().unwrap_or(row);
    let (mut run, settings, lens) = drawn(row, seed);
    let mut prng = Prng::new(seed).fork(0xd0);
    let mut report = Report::default();
    run.open(row, &settings, lens, prng.between(5, 40));
    draw_habits(&mut run, &mut prng);
    draw_pauses(&mut run, &mut prng);
    // Long enough for most to come; what is under way then is in both phases.
    let timeout = run.world.network.options().nic.timing.timeout;
    let long = timeout * prng.between(2, 40) as u32;
    // In one run of four a host crashes in the midst of it.
    let crashes = prng.below(4) == 0;
    let short = Duration::from_nanos(prng.magnitude(timeout.as_nanos() as u64));
    let end: Instant = run.world.network.now() + if crashes { short } else { long };
    while run.world.network.now() < end && !run.is_broken() {
        // All may have come long before.
        run.news_at = run.steps;
        run.step();
    }
    // In one of two of those that lend.
    let takes_back = row.lends && !crashes && prng.below(2) == 0;
    let mut out = None;
    if crashes {
        crash(&mut run, &mut prng);
    } else if takes_back {
        let index = take_back(&mut run, &mut prng);
        // With what goes wrong all the same.
        run.pass(timeout * prng.between(0, 20) as u32);
        out = Some(index);
    }
    run.world.network.heal();
    run.world.pauses.clear();
    run.world.replays = 0;
    if crashes {
        // Whoever has an op under way learns how it ended.
        run.pass(timeout * 20);
        run.check_end();
    } else {
        // Earlier failures may yet come out, and an end that is out is told so.
        run.finish();
        run.check_end();
        if !run.is_broken_but(out) {
            run.check_all_came_but(out);
        }
    }
    report.take(&run);
    report.crashes += u64::from(crashes);
    report.taken_back += u64::from(out.is_some_and(|it| run.streams[it].broken.is_some()));
    // Who is stopped for long is rightly taken for silent.
    while (0..run.world.nodes()).any(|node| !run.world.network.is_running(NodeId(node))) {
        run.step();
    }
    // Links are the same, and congestion control has made windows so small that a tail may have to
    // wait for its turn longer than any host stopped for.
    run.world.patience = 1000;
    let settings = Settings { name: settings.name + 1, ..settings };
    run.open(row, &settings, lens, 5);
    run.finish();
    run.check_all_came();
    report.take(&run);
    report
}

#[test]
fn each_message_comes_once_and_in_order_or_its_sender_is_told_whatever_goes_wrong() {
    let try_all = |row: &Row| {
        let mut total = Report::default();
        seeds().for_each(|seed| total.add(&run_seed(row, seed)));
        total
    };
    let totals: Vec<(&Row, Report)> = thread::scope(|scope| {
        let all: Vec<_> = rows().map(|row| (row, scope.spawn(move || try_all(row)))).collect();
        all.into_iter().map(|(row, it)| (row, it.join().expect("printed above"))).collect()
    });
    for (row, total) in totals {
        println!("{} ({}): {} seeds, {total:?}", row.kind, row.kind as u8, seeds().count());
        // Few networks cannot show everything.
        if seeds().count() >= SEEDS as usize {
            assert!(total.processed > total.messages / 2 && total.full > 0, "{total:?}");
            assert_eq!(total.taken_back > 0, row.lends, "{total:?}");
        }
    }
}

#[test]
fn a_run_depends_on_nothing_but_its_seed() {
    for row in rows() {
        let run = |seed| {
            let (mut run, settings, lens) = drawn(row, seed);
            run.open(row, &settings, lens, 10);
            run.pass(Duration::from_millis(1));
            let states: Vec<_> = run.streams[0].sent.iter().map(|sent| sent.state).collect();
            (states, run.world.network.counts(NodeId(0)).total())
        };
        for seed in 0..3 {
            assert_eq!(run(seed), run(seed), "{}", row.kind);
        }
    }
}
