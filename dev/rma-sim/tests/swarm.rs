//! Many seeds, each another network: faults and mishaps first, then none.
//!
//! `RMA_SIM_SEEDS` says how many, `RMA_SIM_FIRST` where to begin. `RMA_SIM_SEED` runs one of them
//! and prints all that happens; `RMA_SIM_PCAP` names a directory for the captures of its nodes.

use std::{
    fs::{self, File},
    io::BufWriter,
    ops::Range,
    path::PathBuf,
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

use rma_core::{
    error::{DropReason, NotSent},
    op::{OpStatus, OpType},
};
use rma_lab::evidence;
use rma_sim::{
    load::{
        scenario::{Options, Report},
        swarm::{Found, run_seed},
    },
    net::frame::NodeId,
    pcap::Capture,
};

/// How many seeds the swarm runs, unless RMA_SIM_SEEDS says otherwise.
const SEEDS: u64 = 2000;

/// How many seeds a thread takes at once. Their reports are added in the order of the seeds, so
/// that the digest of all does not depend on which thread ran which.
const PART: u64 = 100;

fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}: it must be a number")))
}

fn seeds() -> Range<u64> {
    let first = variable("RMA_SIM_FIRST").unwrap_or(0);
    first..first + variable("RMA_SIM_SEEDS").unwrap_or(SEEDS)
}

/// Runs one seed and shows it.
fn replay(seed: u64) {
    let options = Options::from_seed(seed);
    println!("{options}");
    let capture = |(directory, node): (&PathBuf, u16)| {
        let path = directory.join(format!("seed-{seed}-n{node}.pcapng"));
        println!("capturing {}", path.display());
        let file =
            File::create(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Capture::new(NodeId(node), BufWriter::new(file)).expect("the file takes bytes")
    };
    let directory = std::env::var_os("RMA_SIM_PCAP").map(PathBuf::from);
    let mut captures: Vec<_> = directory
        .iter()
        .inspect(|path| {
            fs::create_dir_all(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        })
        .flat_map(|path| (0..options.nodes.len() as u16).map(move |node| (path, node)))
        .map(capture)
        .collect();
    let report = run_seed(seed, |seen| {
        println!("{seen}");
        captures.iter_mut().try_for_each(|capture| capture.take(seen)).expect("files take bytes");
    });
    for capture in captures {
        capture.finish().expect("files take bytes");
    }
    println!("{}", report.unwrap_or_else(|found| panic!("{found}")));
}

/// The first failure, or all reports in one.
fn run_part(part: Range<u64>) -> Result<Report, Box<Found>> {
    let mut sum = Report::default();
    for seed in part {
        sum.add(&run_seed(seed, |_| ())?);
    }
    Ok(sum)
}

/// Runs all `seeds` on all cores. After a failure no thread takes another part.
fn run_all(seeds: &Range<u64>) -> Report {
    let next = AtomicU64::new(seeds.start);
    let work = || {
        let mut parts = Vec::new();
        loop {
            let start = next.fetch_add(PART, Ordering::Relaxed);
            if start >= seeds.end {
                return parts;
            }
            let report = run_part(start..seeds.end.min(start + PART));
            if report.is_err() {
                next.store(seeds.end, Ordering::Relaxed);
            }
            parts.push((start, report));
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let mut parts: Vec<(u64, Result<Report, Box<Found>>)> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let join = |worker: thread::ScopedJoinHandle<'_, Vec<_>>| worker.join();
        workers.into_iter().flat_map(|worker| join(worker).expect("printed above")).collect()
    });
    parts.sort_by_key(|&(start, _)| start);
    parts.into_iter().fold(Report::default(), |mut total, (_, part)| {
        total.add(&part.unwrap_or_else(|found| panic!("{found}")));
        total
    })
}

#[test]
fn the_swarm_keeps_every_promise_and_reaches_every_status() {
    if let Some(seed) = variable("RMA_SIM_SEED") {
        return replay(seed);
    }
    let total = run_all(&seeds());
    let (seeds_run, events) = (seeds().count(), total.frame_events());
    evidence::show(format_args!("simulated networks: {seeds_run} seeds, {events} frame events"));
    println!("{total}");
    // A short swarm cannot reach everything.
    if seeds().count() < SEEDS as usize {
        return;
    }
    for (op_type, status) in OpType::ALL.into_iter().flat_map(|it| OpStatus::ALL.map(|st| (it, st)))
    {
        let cannot = match status {
            // All that these say makes sense: they have no bounds and no local region.
            OpStatus::InvalidCommand | OpStatus::RemoteOutOfBounds => {
                matches!(op_type, OpType::Rekey | OpType::Notify)
            }
            OpStatus::RemoteNotReady => {
                !matches!(op_type, OpType::Send | OpType::Notify | OpType::WriteWithImm)
            }
            _ => false,
        };
        let reached = total.ended(op_type, status) > 0;
        assert_ne!(reached, cannot, "{op_type:?} that ended with {status}");
    }
    // Drops that an honest network does not cause, or hardly ever.
    let elsewhere = [
        DropReason::NotForThisHost,
        DropReason::OutsideOp,
        DropReason::TooManyFrames,
        DropReason::RekeysWait,
    ];
    for reason in DropReason::ALL {
        let reached = total.drops[reason as usize] > 0;
        assert!(reached || elsewhere.contains(&reason), "nothing was dropped for {reason:?}");
    }
    for reason in NotSent::ALL {
        assert!(total.not_sent[reason as usize] > 0, "no frame was not sent for {reason:?}");
    }
    assert!(total.pauses > 0 && total.crashes > 0 && total.lost > 0, "{total}");
    assert!(total.made_room.iter().all(|&count| count > 0), "{total}");
    assert!(total.changes > 0 && total.stalls > 0 && total.late_effects > 0, "{total}");
    assert!(total.shared > 0 && total.tails > 0 && total.unpaid > 0, "{total}");
    assert!(total.verdicts.iter().chain(&total.atomics).all(|&count| count > 0), "{total}");
    assert!(total.boards.iter().all(|&count| count > 0) && total.queue_rekeys > 0, "{total}");
    assert!(total.bursts > 0 && total.gathers > 0, "{total}");
    assert!(total.handed.iter().all(|&count| count > 0), "{total}");
}
