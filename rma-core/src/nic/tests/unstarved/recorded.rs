//! Recorded ops and SETTLEs: what replays of one host's leave of other hosts' atomics, and of reads
//! that wait where SETTLEs do.

use super::{super::stage::saying_done, net::WORD, *};
use crate::{
    command::RecordedOp,
    outcome::{OpName, Verdict},
};

const TIME: Duration = Duration::from_millis(150);
const RATES: [(u64, u32); 3] = [(640, 80), (6_400, 80), (64_000, 50)];

/// Returns the word at the target, that everybody adds to.
fn word(net: &Net) -> u64 {
    net.hosts[TARGET].memory.load_acquire(WORD).unwrap()
}

/// Runs an op of [`USELESS`] alone until it ends well. Returns its request, and its name.
fn record(net: &mut Net, command: Command) -> (Flight, OpName) {
    net.issue(USELESS, command);
    let request = net.hosts[USELESS].transmit(net.now).remove(0);
    net.send(request.clone());
    net.pass(Duration::from_micros(50));
    let completion = net.completions(USELESS).pop_front().unwrap();
    assert_eq!(completion.status, OpStatus::Ok, "{command:?}");
    (request, completion.name().unwrap())
}

/// Requests of ops of [`USELESS`] that have ended long ago, of which each says that the one before
/// is done, and the name of the last.
fn recorded(net: &mut Net, op: RecordedOp, count: usize) -> (Vec<Flight>, Command, OpName) {
    let (mut requests, mut last) = (Vec::new(), None);
    let plain = net.recorded((USELESS, TARGET), 0, op);
    for number in 0..count {
        let class = ClassOfService::ALL[number % 2];
        let command = last.map_or(plain, |name: OpName| saying_done(plain, name.into()));
        let (request, name) = record(net, Command { class, ..command });
        requests.push(request);
        last = Some(name);
    }
    (requests, plain, last.unwrap())
}

/// Runs `loads` beside `flood`, and then without it until they are over. Returns how many ops of
/// the second one were OK in the end.
fn run_out(net: &mut Net, loads: &mut (Load, Load), flood: impl FnMut(&mut Net)) -> u64 {
    run(net, TIME, flood, loads);
    net.pass(Duration::from_millis(1));
    let rest = net.completions(loads.1.between.0);
    let more = rest.iter().filter(|it| it.status == OpStatus::Ok).count();
    u64::from(loads.1.of(OpStatus::Ok)) + more as u64
}

//= channels#P13-no-starvation
//= type=test
#[test]
fn atomics_of_others_go_on_beside_replays_of_recorded_ops_of_any_rate_which_change_nothing() {
    for is_atomic in [true, false] {
        let beside = |per_second: u64| {
            let mut net = Net::new(4, NicConfigBuilder::default());
            let op = if is_atomic {
                RecordedOp::FetchAdd { remote_offset: WORD, addend: 1 << 32 }
            } else {
                RecordedOp::OrderedWrite(net.transfer(USELESS))
            };
            let (requests, ..) = recorded(&mut net, op, 1024);
            let before = word(&net);
            assert_eq!(before, if is_atomic { 1024 << 32 } else { 0 });
            let reads = Load::start(&mut net, (TARGET, SERVER), OpType::Read, 4);
            let atomics = Load::start(&mut net, (HONEST, TARGET), OpType::FetchAdd, 4);
            let mut loads = (reads, atomics);
            let added = run_out(&mut net, &mut loads, replays(&requests, per_second));
            assert_eq!(loads.1.of(OpStatus::Timeout), 0);
            assert_eq!(word(&net), before + added, "each once, and none of those replayed");
            net.pass(net.hosts[TARGET].nic.config().settings().timing.timeout);
            let gauges = net.hosts[TARGET].nic.gauges();
            assert_eq!((gauges.pending_writes_parked, gauges.staging_used), (0, 0));
            assert_eq!(gauges.pending_writes_used, [0, 0]);
            loads
        };
        let (mut reads, atomics) = beside(0);
        assert_eq!((reads.failed(), atomics.failed()), (0, 0));
        let (all_reads, read_p99) = (reads.of(OpStatus::Ok), reads.p99_nanos());
        let all = atomics.of(OpStatus::Ok);
        for (per_second, percent) in RATES {
            let (mut reads, atomics) = beside(per_second);
            let (ok, p99) = (reads.of(OpStatus::Ok), reads.p99_nanos());
            assert_eq!(reads.failed(), 0, "{per_second}: {:?}", reads.ended);
            assert!(ok * 2 >= all_reads && p99 <= 3 * read_p99, "{per_second}: {ok} reads");
            let ok = atomics.of(OpStatus::Ok);
            assert!(ok * 100 >= all * percent, "{per_second}: {:?} of {all}", atomics.ended);
        }
    }
}

//= channels#P13-no-starvation
//= type=test
#[test]
fn reads_and_atomics_of_others_go_on_beside_replayed_settles_of_any_rate_which_end_nothing() {
    let beside = |per_second: u64| {
        let mut net = Net::new(4, NicConfigBuilder::default());
        let add = RecordedOp::FetchAdd { remote_offset: WORD, addend: 1 << 32 };
        let (_, of, name) = recorded(&mut net, add, 2);
        let settles: Vec<_> = (0..1024)
            .map(|number| {
                let class = ClassOfService::ALL[number % 2];
                let op = CommandOp::Settle { op_type: OpType::FetchAdd, name };
                record(&mut net, Command { class, op, ..of }).0
            })
            .collect();
        let settled = |net: &Net| {
            Verdict::ALL.map(|verdict| net.hosts[TARGET].nic.counters().settled(verdict))
        };
        let (before, settled_before) = (word(&net), settled(&net));
        let reads = Load::start(&mut net, (SERVER, TARGET), OpType::Read, 4);
        let atomics = Load::start(&mut net, (HONEST, TARGET), OpType::FetchAdd, 4);
        let mut loads = (reads, atomics);
        let added = run_out(&mut net, &mut loads, replays(&settles, per_second));
        assert_eq!(word(&net), before + added);
        let after = settled(&net);
        assert_eq!(after[1], settled_before[1], "no op is ended by it");
        let answered: u64 = after.iter().sum::<u64>() - settled_before.iter().sum::<u64>();
        assert!(answered * 2 >= per_second * TIME.as_millis() as u64 / 1000, "{answered} answered");
        loads
    };
    let (mut reads, atomics) = beside(0);
    assert_eq!((reads.failed(), atomics.failed()), (0, 0));
    let (all_reads, read_p99) = (reads.of(OpStatus::Ok), reads.p99_nanos());
    let all = atomics.of(OpStatus::Ok);
    for (per_second, percent) in RATES {
        let (mut reads, atomics) = beside(per_second);
        let (ok, p99) = (reads.of(OpStatus::Ok), reads.p99_nanos());
        assert_eq!((reads.failed(), atomics.failed()), (0, 0), "{per_second}");
        assert!(ok * 100 >= all_reads * percent && p99 <= 3 * read_p99, "{per_second}: {ok}");
        let ok = atomics.of(OpStatus::Ok);
        assert!(ok * 100 >= all * percent, "{per_second}: {ok} of {all}");
    }
}
