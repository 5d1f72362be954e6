//! Nobody starves (P13): what recordings, and peers that ask and then send nothing, leave of a
//! host's window, tables and turns to its own reads and to the writes of others.

use std::collections::BTreeMap;

use super::{
    stage::{ALL, saying_done},
    *,
};
use crate::outcome::Done;

mod net;
mod reads;
mod recorded;
mod records;
mod rules;
mod tenants;

use net::{At, Net};

/// The host that is attacked; one that it reads from; one whose writes are recorded or never end;
/// an honest one that writes.
const TARGET: At = 0;
const SERVER: At = 1;
const USELESS: At = 2;
const HONEST: At = 3;

/// Requests of [`USELESS`] of both classes, whose ops ended long ago, and whose entries have been
/// others' since.
fn recordings(net: &mut Net, count: usize) -> Vec<Flight> {
    let mut recorded = Vec::new();
    while recorded.len() < count {
        let class = ClassOfService::ALL[recorded.len() % 2];
        let command = Command { class, ..net.command((USELESS, TARGET), 0, OpType::Write) };
        net.issue(USELESS, command);
        let request = net.hosts[USELESS].transmit(net.now).remove(0);
        net.send(request.clone());
        recorded.push(request);
        net.pass(Duration::from_micros(50));
        assert_eq!(net.completions(USELESS).pop_front().unwrap().status, OpStatus::Ok);
    }
    recorded
}

/// Ops that a host keeps under way without pause, and how they ended.
struct Load {
    between: (At, At),
    op_type: OpType,
    both_classes: bool,
    /// When a slot that was refused is used again.
    retry: Vec<(Instant, u16)>,
    /// By slot: its last recorded op, whose end is known.
    done: BTreeMap<u16, Done>,
    ended: [u32; OpStatus::ALL.len()],
    /// `total_delay` of those that ended with OK, in nanoseconds.
    delays: Vec<u64>,
}

impl Load {
    fn start(net: &mut Net, between: (At, At), op_type: OpType, under_way: u16) -> Self {
        let (retry, done, ended, delays) = Default::default();
        let load = Self { between, op_type, both_classes: false, retry, done, ended, delays };
        (0..under_way).for_each(|slot| load.issue(net, slot));
        load
    }

    /// The same, with every second op in the other class.
    fn of_both_classes(net: &mut Net, between: (At, At), op_type: OpType, under_way: u16) -> Self {
        let load = Self { both_classes: true, ..Self::start(net, between, op_type, 0) };
        (0..under_way).for_each(|slot| load.issue(net, slot));
        load
    }

    fn issue(&self, net: &mut Net, slot: u16) {
        let class = ClassOfService::ALL[usize::from(self.both_classes && slot % 2 == 1)];
        let command = net.command(self.between, slot, self.op_type);
        let done = self.done.get(&slot);
        let command = done.map_or(command, |&done| saying_done(command, done));
        net.issue(self.between.0, Command { class, ..command });
    }

    /// Issues anew what has ended: after a millisecond what did not end well.
    fn turn(&mut self, net: &mut Net) {
        for completion in net.completions(self.between.0) {
            self.ended[completion.status as usize] += 1;
            if completion.status == OpStatus::Ok {
                self.done.extend(completion.name().map(|it| (completion.slot.0, it.into())));
            }
            let pause = if completion.status == OpStatus::Ok {
                self.delays.push(completion.delays_nanos().1);
                Duration::ZERO
            } else {
                Duration::from_millis(1)
            };
            self.retry.push((net.now + pause, completion.slot.0));
        }
        let (due, later) = self.retry.drain(..).partition(|&(at, _)| at <= net.now);
        self.retry = later;
        let due: Vec<_> = due;
        due.into_iter().for_each(|(_, slot)| self.issue(net, slot));
    }

    fn of(&self, status: OpStatus) -> u32 {
        self.ended[status as usize]
    }

    /// How many ended otherwise than with OK.
    fn failed(&self) -> u32 {
        self.ended.iter().sum::<u32>() - self.of(OpStatus::Ok)
    }

    fn p99_nanos(&mut self) -> u64 {
        self.delays.sort_unstable();
        self.delays[self.delays.len() * 99 / 100]
    }
}

/// Four reads of the host's own and four writes of an honest host under way without pause.
fn loads(net: &mut Net) -> (Load, Load) {
    let reads = Load::start(net, (TARGET, SERVER), OpType::Read, 4);
    let writes = Load::start(net, (HONEST, TARGET), OpType::Write, 4);
    (reads, writes)
}

/// Runs `loads` for `time` beside `useless` requests a second.
fn run(net: &mut Net, time: Duration, mut useless: impl FnMut(&mut Net), loads: &mut (Load, Load)) {
    let until = net.now + time;
    while net.now < until {
        useless(net);
        net.turn();
        loads.0.turn(net);
        loads.1.turn(net);
    }
}

/// Replays recordings in turn, `per_second` of them.
fn replays(recorded: &[Flight], per_second: u64) -> impl FnMut(&mut Net) {
    let mut sent = 0;
    let mut began = None;
    move |net| {
        let began = *began.get_or_insert(net.now);
        let due = net.now.nanos_since(began) * per_second / 1_000_000_000;
        while sent < due {
            net.send(recorded[sent as usize % recorded.len()].clone());
            sent += 1;
        }
    }
}

/// Without a key: 64 frames in the time of a timeout.
#[test]
fn replayed_writes_do_not_stop_the_hosts_own_reads() {
    let mut net = Net::new(3, NicConfigBuilder::default());
    let recorded = recordings(&mut net, 1024);
    let mut reads = Load::start(&mut net, (TARGET, SERVER), OpType::Read, 1);
    let mut next = recorded.iter().cycle();
    for _ in 0..3 {
        for flight in next.by_ref().take(64) {
            net.send(flight.clone());
        }
        let until = net.now + Duration::from_millis(100);
        while net.now < until {
            net.turn();
            reads.turn(&mut net);
        }
    }
    assert_eq!(reads.failed(), 0, "{:?}", reads.ended);
    assert!(reads.of(OpStatus::Ok) > 9_000, "{:?}", reads.ended);
}

/// The innocent case of the same: a fleet of writers that was stopped.
#[test]
fn writers_that_ask_and_send_nothing_do_not_stop_the_hosts_own_reads() {
    let mut net = Net::new(3, NicConfigBuilder::default());
    net.deaf.push(USELESS);
    let mut silent = Load::of_both_classes(&mut net, (USELESS, TARGET), OpType::Write, 64);
    let mut reads = Load::start(&mut net, (TARGET, SERVER), OpType::Read, 1);
    let until = net.now + Duration::from_millis(300);
    while net.now < until {
        net.turn();
        silent.turn(&mut net);
        reads.turn(&mut net);
    }
    assert!(silent.of(OpStatus::Timeout) > 64, "{:?}", silent.ended);
    assert_eq!(reads.failed(), 0, "{:?}", reads.ended);
    assert!(reads.of(OpStatus::Ok) > 9_000, "{:?}", reads.ended);
}

/// Own reads and honest writes keep their room, at rates from what fills a window once in a timeout
/// to a hundred times that. The tables of the whole host are in it, its processor is not.
#[test]
fn own_reads_and_honest_writes_go_on_beside_useless_requests_of_any_rate() {
    const TIME: Duration = Duration::from_millis(150);
    let quiet = |useless: Option<u64>| {
        let mut net = Net::new(4, NicConfigBuilder::default());
        let recorded = recordings(&mut net, 1024);
        let mut loads = loads(&mut net);
        let replays = replays(&recorded, useless.unwrap_or(0));
        run(&mut net, TIME, replays, &mut loads);
        assert!(net.most_debited <= 256 << 10);
        loads
    };
    let (mut reads, mut writes) = quiet(None);
    let (all_reads, read_p99) = (reads.of(OpStatus::Ok), reads.p99_nanos());
    let all_writes = writes.of(OpStatus::Ok);
    assert_eq!((reads.failed(), writes.failed()), (0, 0));
    for (per_second, percent) in [(640, 80), (6_400, 80), (64_000, 50)] {
        (reads, writes) = quiet(Some(per_second));
        let (ok, p99) = (reads.of(OpStatus::Ok), reads.p99_nanos());
        assert_eq!(reads.failed(), 0, "{per_second}: {:?}", reads.ended);
        assert!(ok * 2 >= all_reads && p99 <= 3 * read_p99, "{per_second}: {ok} reads, {p99} ns");
        let ok = writes.of(OpStatus::Ok);
        assert!(
            ok * 100 >= all_writes * percent,
            "{per_second}: {:?} of {all_writes}",
            writes.ended
        );
    }
}
