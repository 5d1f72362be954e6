//! READ, WRITE and Rekey over a hostile wire, alone and together, and hosts that are started anew
//! meanwhile.

use core::{
    fmt,
    sync::atomic::{AtomicBool, Ordering::SeqCst},
};

use std::collections::BTreeSet;

use rma_sim::prng::{Chance, Prng};
use rma_xdp::{
    Grant, Host, OpStatus, OpType, Portal, RegionKey,
    metrics::{DropReason, MetricsSource},
    time::{Clock, TscClock},
};

use super::{
    faults::{Fault, Faults, Tally},
    forge::Captured,
    frame,
    lab::Ends,
    recorded::{
        Effect, RecordedWorker,
        events::{self, Events},
    },
    table::{Circumstances, Kind, Outcomes, allows, stood_still},
    worker::Worker,
};
use crate::hosts::CLIENT_PID;

/// How long what is right in everything may be lost on a good wire.
const PATIENCE_NANOS: u64 = 5_000_000_000;

/// The report of a run.
#[derive(Debug, Default)]
pub struct Report {
    lines: Vec<String>,
    tally: Tally,
}

impl Report {
    fn worker(&mut self, name: &str, worker: &Worker) {
        let (outcomes, repeated) = worker.outcomes();
        let late = worker.late_effects();
        self.lines.push(format!("{name}: {outcomes}{repeated} repeated, {late} late effects"));
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.lines {
            writeln!(f, "  {line}")?;
        }
        write!(f, "  wire: {}", self.tally)
    }
}

/// `count` ops of one type while the wire has `faults`; then what ever came by once more; then ops
/// on a good wire.
///
/// # Panics
/// If anything is not as it must be.
pub fn one_type(
    ends: &Ends,
    op_type: OpType,
    count: usize,
    faults: &Faults,
    circumstances: Circumstances,
) -> Report {
    let mut worker = Worker::new(ends, op_type, ends.setup.seed);
    ends.wire().set_faults(*faults);
    worker.run(count, faults, circumstances);
    ends.wire().calm();
    worker.assert_alive();
    ends.wire().replay_all(true);
    worker.assert_alive();
    assert!(worker.outcomes().0.of(Kind::Good, OpStatus::Ok) > 0, "some must get through");
    // Small tables keep most of it out.
    if !circumstances.tight {
        assert_nics_have_seen_it(ends, op_type);
    }
    report(ends, faults, &[(op_type, &worker)])
}

/// Reads and writes at once.
///
/// # Panics
/// If anything is not as it must be.
pub fn both_types(ends: &Ends, count: usize, faults: &Faults) -> Report {
    let seed = ends.setup.seed;
    let types = [OpType::Read, OpType::Write];
    let mut workers = types.map(|op_type| Worker::new(ends, op_type, seed));
    ends.wire().set_faults(*faults);
    std::thread::scope(|scope| {
        for worker in &mut workers {
            scope.spawn(|| worker.run(count, faults, Circumstances::default()));
        }
    });
    ends.wire().calm();
    ends.wire().replay_all(true);
    for worker in &mut workers {
        worker.assert_alive();
    }
    let [reads, writes] = &workers;
    report(ends, faults, &[(OpType::Read, reads), (OpType::Write, writes)])
}

/// `count` recorded ops of one type while the wire has `faults`; then what ever came by once more,
/// requests and SETTLEs among it; then ops on a good wire.
///
/// # Panics
/// If anything is not as it must be.
pub fn all_or_nothing<E: Effect>(ends: &Ends, count: usize, faults: &Faults) -> Report {
    let mut worker = RecordedWorker::<E>::new(ends);
    ends.wire().set_faults(*faults);
    worker.run(count, faults);
    let (applied, [settled, cancelled, _], unknown) = worker.known();
    assert!(applied > count as u64 / 8, "enough must get through: {}", worker.outcomes());
    // Ops that share packets are lost together: one verdict may be all that there is to hear.
    assert!(settled + cancelled > 0, "no op was lost that had to be asked about");
    assert!(unknown < applied / 16, "of {unknown} ops nothing is known, {applied} were applied");
    ends.wire().calm();
    ends.wire().replay_all(true);
    worker.assert_at_rest();
    worker.run(count / 8, &Faults::NONE.with(Fault::Replay, Chance::ppm(1)));
    ends.wire().replay_all(true);
    worker.assert_at_rest();
    assert_counted(ends, worker.late_effects());
    let mut report = Report { tally: ends.wire().tally(), ..Report::default() };
    report.tally.assert_each_happened(faults);
    let (applied, verdicts, unknown) = worker.known();
    report.lines.push(format!(
        "{}: {}{applied} applied, verdicts {verdicts:?}, {unknown} unknown, {} late effects",
        E::OP_TYPE,
        worker.outcomes(),
        worker.late_effects()
    ));
    report
}

/// Recorded ops of one type while their region's key changes again and again; then what ever came
/// by once more; then ops on a good wire. None of the faults may refuse an op.
///
/// # Panics
/// If anything is not as it must be.
pub fn recorded_rekeys<E: Effect>(ends: &Ends, rounds: usize, faults: &Faults) -> Report {
    let mut worker = RecordedWorker::<E>::new(ends);
    ends.wire().set_faults(*faults);
    worker.run_rekeyed(ends.server(), rounds, faults);
    let failed = worker.outcomes().of(Kind::Good, OpStatus::RemoteAuthenticationFailure);
    assert!(failed > 0, "no op met a change of its key: {}", worker.outcomes());
    ends.wire().calm();
    ends.wire().replay_all(true);
    worker.assert_at_rest();
    worker.run(64, &Faults::NONE.with(Fault::Replay, Chance::ppm(1)));
    assert_counted(ends, worker.late_effects());
    let (applied, verdicts, unknown) = worker.known();
    let outcomes = worker.outcomes();
    let line = format!(
        "{}: {outcomes}{applied} applied, verdicts {verdicts:?}, {unknown} unknown",
        E::OP_TYPE
    );
    Report { tally: ends.wire().tally(), lines: vec![line] }
}

/// An engine that the scheduler stops between clock and copy breaks the promise, but it counts each
/// such frame: of all workers together, no more may have been late.
fn assert_late_is_counted<'a>(ends: &Ends, workers: impl IntoIterator<Item = &'a Worker>) {
    assert_counted(ends, workers.into_iter().map(Worker::late_effects).sum());
}

fn assert_counted(ends: &Ends, late: u64) {
    let clock = TscClock::new();
    // It counts after the copy.
    while late > ends.server().engines()[0].counters.late_effects() {
        let counted = ends.server().engines()[0].counters.late_effects();
        assert!(
            clock.now().as_nanos() < PATIENCE_NANOS,
            "at least {late} effects came after their ops, {counted} were counted"
        );
        std::thread::yield_now();
    }
}

fn report(ends: &Ends, faults: &Faults, workers: &[(OpType, &Worker)]) -> Report {
    assert_late_is_counted(ends, workers.iter().map(|(_, worker)| *worker));
    let mut report = Report { tally: ends.wire().tally(), ..Report::default() };
    report.tally.assert_each_happened(faults);
    for (op_type, worker) in workers {
        report.worker(&format!("{op_type:?}"), worker);
    }
    for (name, host) in [("client", ends.client()), ("server", ends.server())] {
        let drops: Vec<_> = host.engines()[0].counters.all_drops().collect();
        report.lines.push(format!("{name}: {drops:?}"));
    }
    report
}

/// Checks that the wire's own frames have reached the NICs, and they have told it from what hosts
/// send.
fn assert_nics_have_seen_it(ends: &Ends, op_type: OpType) {
    use DropReason::{
        DataUnauthenticated, Duplicate, LateOrUnsolicited, RequestUnauthenticated,
        ResponseUnauthenticated, SolicitedTwice, UnknownPendingWrite, UnknownRegion,
    };
    let seen = |host: &Host, reasons: &[DropReason]| {
        for &reason in reasons {
            let all: Vec<_> = host.engines()[0].counters.all_drops().collect();
            assert!(
                host.engines()[0].counters.drops(reason) > 0,
                "{reason:?} never happened: {all:?}"
            );
        }
    };
    seen(ends.client(), &[LateOrUnsolicited, ResponseUnauthenticated, UnknownRegion]);
    seen(ends.server(), &[RequestUnauthenticated, LateOrUnsolicited, UnknownRegion]);
    if op_type == OpType::Read {
        seen(ends.client(), &[Duplicate]);
    } else {
        seen(ends.client(), &[SolicitedTwice]);
        seen(ends.server(), &[UnknownPendingWrite, DataUnauthenticated]);
    }
}

/// The rotation of a worker's key: in turns its owner and, over the wire, the client.
struct Rotation {
    prng: Prng,
    client: MetricsSource,
    portal: Portal,
    grant: Grant,
    outcomes: Outcomes,
    /// Every key that was ever to be installed.
    keys: Vec<RegionKey>,
}

impl Rotation {
    fn new(ends: &Ends, worker: &Worker) -> Self {
        Self {
            prng: Prng::new(ends.setup.seed).fork(9),
            client: ends.client().metrics_source().clone(),
            portal: ends.client().portal(1).expect("a slot"),
            grant: present(ends, worker, OpType::Rekey),
            outcomes: Outcomes::default(),
            keys: Vec::new(),
        }
    }

    fn fresh_key(&mut self) -> RegionKey {
        let mut key = [0; 16];
        self.prng.fill(&mut key);
        self.keys.push(RegionKey::from_bytes(key));
        RegionKey::from_bytes(key)
    }

    /// Tries to install a key over the wire, once.
    fn rekey(&mut self, key: RegionKey, faults: &Faults) -> OpStatus {
        self.portal.rekey(&self.grant, key).expect("a sensible op");
        let status = self.portal.wait().expect("the engine lives").status;
        self.outcomes.count(Kind::Good, status);
        let shed = status == OpStatus::DispatchTimeout;
        let stood_still = shed && stood_still(&self.client);
        let circumstances = Circumstances { stood_still, ..Circumstances::default() };
        let allowed = allows(OpType::Rekey, Kind::Good, status, faults, circumstances);
        assert!(allowed, "Rekey: {status} is not explained by these faults: {faults}");
        status
    }
}

/// A grant on a worker's region under the key that the server has now.
fn present(ends: &Ends, worker: &Worker, op_type: OpType) -> Grant {
    let grant = ends.server().grant(worker.remote(), ends.client_addr(), CLIENT_PID, op_type);
    grant.expect("registered")
}

/// Ends a loop of another thread, also when this one panics.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// The key of the writes' region changes in mid-run, by its owner or by a Rekey op. Ops of that
/// region alone fail of it; what came under an old key changes nothing any longer, then or when it
/// is replayed; and a Rekey that was not reported OK has happened by then or never.
///
/// # Panics
/// If anything is not as it must be.
pub fn rekeys(ends: &Ends, rounds: usize, faults: &Faults) -> Report {
    let seed = ends.setup.seed;
    let mut reads = Worker::new(ends, OpType::Read, seed);
    let mut writes = Worker::new(ends, OpType::Write, seed);
    let mut rotation = Rotation::new(ends, &writes);
    ends.wire().set_faults(*faults);
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ending = Ending(&ended);
        // The other region notices nothing.
        scope.spawn(|| {
            while !ended.load(SeqCst) {
                reads.run(50, faults, Circumstances::default());
            }
        });
        for round in 0..rounds {
            rotate(ends, &mut writes, &mut rotation, faults, round % 2 == 0);
        }
    });
    ends.wire().calm();
    ends.wire().replay_all(true);
    assert_present(ends, &writes, "replayed frames");
    for worker in [&mut reads, &mut writes] {
        worker.assert_alive();
    }
    rekey_on_a_good_wire(ends, &mut writes, &mut rotation);
    ends.wire().replay_all(true);
    assert_present(ends, &writes, "replayed frames");
    writes.run(200, &Faults::NONE, Circumstances::default());
    assert!(writes.outcomes().0.of(Kind::OldKey, OpStatus::RemoteAuthenticationFailure) > 0);
    let mut report = report(ends, faults, &[(OpType::Read, &reads), (OpType::Write, &writes)]);
    report.lines.push(format!("Rekey: {}", rotation.outcomes));
    report
}

/// One rotation with ops in flight, and ops after it.
fn rotate(
    ends: &Ends,
    writes: &mut Worker,
    rotation: &mut Rotation,
    faults: &Faults,
    by_owner: bool,
) {
    let server = ends.server();
    writes.begin(16);
    let key = rotation.fresh_key();
    let reported = if by_owner {
        server.rekey(writes.remote(), key).expect("registered");
        OpStatus::Ok
    } else {
        rotation.rekey(key, faults)
    };
    // The server's present content stays.
    let key_gone = present(ends, writes, OpType::Write).key != writes.grant().key;
    assert!(key_gone || reported != OpStatus::Ok, "reported OK, and not done");
    writes.finish(faults, Circumstances { key_gone, ..Circumstances::default() });
    if key_gone {
        writes.set_key(key);
        rotation.grant = rotation.grant.under(&key);
    }
    // No op fails of it any longer.
    writes.run(40, faults, Circumstances::default());
    assert_present(ends, writes, "a Rekey that was over");
}

/// The server has the key that it had when the last Rekey was reported.
fn assert_present(ends: &Ends, worker: &Worker, what: &str) {
    let present = present(ends, worker, OpType::Write);
    // An engine that was stopped in between may break the promise, but not silently.
    let late = ends.server().engines()[0].counters.late_effects();
    assert!(present == *worker.grant() || late > 0, "{what} changed the key");
    assert_eq!(
        present,
        *worker.grant(),
        "{what} changed the key late; the server has counted {late}"
    );
}

/// Within some attempts a Rekey arrives.
fn rekey_on_a_good_wire(ends: &Ends, writes: &mut Worker, rotation: &mut Rotation) {
    let clock = TscClock::new();
    loop {
        let key = rotation.fresh_key();
        let status = rotation.rekey(key, &Faults::NONE);
        if present(ends, writes, OpType::Write).key != writes.grant().key {
            writes.set_key(key);
            rotation.grant = rotation.grant.under(&key);
        }
        if status == OpStatus::Ok {
            break;
        }
        assert!(clock.now().as_nanos() < PATIENCE_NANOS, "a Rekey never arrives");
    }
    assert_present(ends, writes, "nothing");
    writes.assert_alive();
}

/// Server and client end in turns, and start anew with the same memory, the same keys, the same
/// names of regions and slots: as hostile as a restart can be, since old requests are authentic to
/// the new server. What came by before is replayed meanwhile.
///
/// # Panics
/// If anything is not as it must be.
pub fn restarts(ends: &mut Ends, rounds: usize, faults: &Faults) -> Report {
    let seed = ends.setup.seed;
    let types = [OpType::Read, OpType::Write];
    let mut workers = types.map(|op_type| Worker::new(ends, op_type, seed));
    let mut rotation = Rotation::new(ends, &workers[1]);
    ends.wire().start_tape();
    let (quiet, gone) =
        (Circumstances::default(), Circumstances { key_gone: true, ..Circumstances::default() });
    for _ in 0..rounds {
        ends.wire().set_faults(*faults);
        for worker in &mut workers {
            worker.run(100, faults, quiet);
        }
        let before = workers[1].key();
        rotate(ends, &mut workers[1], &mut rotation, faults, false);
        for worker in &mut workers {
            worker.begin(16);
        }
        // The next server begins to count anew, and so do the workers.
        assert_late_is_counted(ends, &workers);
        ends.restart_server();
        // The Rekey is authentic once more.
        if workers[1].key() != before {
            workers[1].set_key(before);
            rotation.grant = rotation.grant.under(&before);
        }
        for worker in &mut workers {
            worker.follow_server(ends.server());
        }
        ends.wire().begin_replay(false);
        for worker in &mut workers {
            worker.finish(faults, gone);
        }
        ends.wire().wait_until_delivered();
        assert_present(ends, &workers[1], "a Rekey of before the restart");

        ends.open_client(CLIENT_PID);
        for worker in &mut workers {
            worker.follow_client(ends.client());
        }
        rotation.client = ends.client().metrics_source().clone();
        rotation.portal = ends.client().portal(1).expect("a slot");
        ends.wire().begin_replay(true);
        for worker in &mut workers {
            worker.run(100, faults, quiet);
        }
        ends.wire().wait_until_delivered();
    }
    ends.wire().calm();
    ends.wire().replay_all(true);
    assert_present(ends, &workers[1], "a replayed Rekey");
    assert_fresh_ivs(&ends.wire().take_tape());
    for worker in &mut workers {
        worker.assert_alive();
    }
    let [reads, writes] = &workers;
    report(ends, faults, &[(OpType::Read, reads), (OpType::Write, writes)])
}

/// All of it at once, with a recording: what A2 has to work on, and what it must not find there.
///
/// # Panics
/// If anything is not as it must be.
pub fn recorded(ends: &Ends, count: usize, faults: &Faults) -> (Vec<Captured>, Vec<Vec<u8>>) {
    let seed = ends.setup.seed;
    let types = [OpType::Read, OpType::Write];
    let mut workers = types.map(|op_type| Worker::new(ends, op_type, seed));
    let mut rotation = Rotation::new(ends, &workers[1]);
    let mut messages = RecordedWorker::<Events<events::Send>>::new(ends);
    ends.wire().start_tape();
    ends.wire().set_faults(*faults);
    std::thread::scope(|scope| {
        let [reads, writes] = &mut workers;
        scope.spawn(|| reads.run(count, faults, Circumstances::default()));
        scope.spawn(|| messages.run(count, faults));
        for round in 0..count / 100 {
            writes.run(50, faults, Circumstances::default());
            rotate(ends, writes, &mut rotation, faults, round % 4 == 0);
        }
    });
    ends.wire().calm();
    rekey_on_a_good_wire(ends, &mut workers[1], &mut rotation);
    let tape = ends.wire().take_tape();
    assert_fresh_ivs(&tape);
    ends.wire().replay_all(true);
    for worker in &mut workers {
        worker.assert_alive();
    }
    assert_present(ends, &workers[1], "replayed frames");
    messages.assert_at_rest();
    let late: u64 = workers.iter().map(Worker::late_effects).sum();
    assert_counted(ends, late + messages.late_effects());
    ends.wire().tally().assert_each_happened(faults);
    let mut secrets: Vec<Vec<u8>> = workers.iter().map(Worker::secret).collect();
    secrets.extend(messages.secrets());
    secrets.extend(rotation.keys.iter().map(|key| key.expose().to_vec()));
    (tape, secrets)
}

/// No host has sent two frames with one IV (P4).
fn assert_fresh_ivs(tape: &[Captured]) {
    let mut seen = BTreeSet::new();
    for Captured { frame, .. } in tape {
        let ivs = frame::senders_and_counters(frame, rma_xdp::config::DEFAULT_PORT);
        assert!(!ivs.is_empty(), "a packet of no frames was sent: {frame:02x?}");
        for iv in ivs {
            assert!(seen.insert(iv), "{iv:x?} twice");
        }
    }
}
