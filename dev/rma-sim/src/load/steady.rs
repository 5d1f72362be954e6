//! A load that does not change: each host reads from others, chosen evenly, and begins the next
//! read when one ends. For what simulations cost: time for each frame event, and memory, by how
//! many hosts there are, how they seal, and what is checked.
//!
//! Networks are those of [`crate::flows`]: 100 Gbit/s, one switch, 4 KiB reads that take some 5 µs.
//! There is no executor and no log, so what a run costs is the simulator's alone.

use core::time::Duration;
use std::sync::Arc;

use rma_core::{
    addr::{HostAddr, Pid},
    command::{Command, CommandOp, CommandSlotId, Transfer},
    crypto::{KeyBinding, RegionKey, RegionKeySchedule},
    limits::OP_SIZE_MAX,
    nic::{ConfigError, NicConfigBuilder, NicPlace, RegionEntry, Timing},
    op::{ClassOfService, OpStatus, OpType},
    region::{Permissions, RegionId},
};
use rma_shm::Region;

use crate::{
    check::{
        violation::Violation,
        watch::{Checks, Watch},
    },
    hosts::memory::register_row,
    net::{
        clock::ClockOptions,
        frame::NodeId,
        link::{Faults, JitterLaw, LinkOptions},
        model_aead::Seals,
        node::{NodeOptions, Pace},
        queue::QueueOptions,
        sim::Sim,
        trace::{Seen, What},
    },
    prng::Prng,
};

/// All that a load depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SteadyOptions {
    /// The seed of every random number.
    pub seed: u64,
    /// How many hosts there are: two at least.
    pub hosts: u16,
    /// How many reads of each host are under way.
    pub depth: u16,
    /// The way in which NICs seal frames.
    pub seals: Seals,
    /// The promises that are checked.
    pub checks: Checks,
}

/// The events so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SteadyCounts {
    /// Frames that NICs have written, and copies of frames that they have received.
    pub frame_events: u64,
    /// Reads that ended with OK.
    pub ok: u64,
    /// Reads that ended otherwise.
    pub failed: u64,
}

/// A network under load.
#[derive(Debug)]
pub struct Steady {
    sim: Sim,
    watch: Watch,
    hosts: Vec<Host>,
    prng: Prng,
    seen: Vec<Seen>,
    /// Hosts whose reads have ended.
    ended: Vec<(NodeId, CommandSlotId)>,
    counts: SteadyCounts,
}

#[derive(Debug)]
struct Host {
    address: HostAddr,
    key: RegionKeySchedule,
    /// The region that others read.
    served: RegionId,
    /// The region that it reads to.
    sink: RegionId,
}

const RATE: u64 = 12_500_000_000;
const RTT: Duration = Duration::from_micros(5);
const PID: Pid = Pid(7);
/// Command slots and regions of a NIC.
const SLOTS: u32 = 64;
const REGIONS: u32 = 16;

fn node(host: u16) -> NodeOptions {
    let [high, low] = host.to_be_bytes();
    NodeOptions {
        place: NicPlace::at(HostAddr::from([10, 0, high, low])),
        nic: NicConfigBuilder::default().with(|it| {
            it.command_slots = SLOTS;
            it.regions = REGIONS;
            it.timing = Timing::paper(RTT);
            it.rtt = RTT;
            it.bandwidth = RATE;
        }),
        mtu: 9000,
        rate: RATE,
        pace: Pace::Hardware,
        receive_ring: 0,
        clock: ClockOptions::default(),
    }
}

impl Steady {
    /// The network, whose hosts have not begun.
    ///
    /// # Errors
    /// If a NIC cannot be built.
    ///
    /// # Panics
    /// If there is one host, or a host has fewer slots than reads.
    pub fn new(options: &SteadyOptions) -> Result<Self, ConfigError> {
        assert!(options.hosts > 1 && u32::from(options.depth) <= SLOTS, "{options:?}");
        let nodes: Vec<_> = (0..options.hosts).map(node).collect();
        let (delay, jitter) = (Duration::from_nanos(2_000), Duration::from_nanos(200));
        let (rate, queue, faults) = (u64::MAX - 1, u64::MAX, Faults::default());
        let link = LinkOptions { delay, jitter, law: JitterLaw::default(), rate, queue, faults };
        let port = QueueOptions { rate: RATE, len: 1 << 20 };
        let mut sim = Sim::with_seals(&nodes, link, Some(port), options.seed, options.seals)?;
        let watch = Watch::new(&sim, options.checks);
        if options.checks == Checks::Light {
            sim.set_quiet();
        }
        let hosts = sim.nodes().map(|host| serve(&mut sim, host)).collect();
        let (prng, counts) = (Prng::new(options.seed).fork(1), SteadyCounts::default());
        let all = |host| (0..options.depth).map(move |slot| (host, CommandSlotId(slot)));
        let (seen, ended) = (Vec::new(), sim.nodes().flat_map(all).collect());
        Ok(Self { sim, watch, hosts, prng, seen, ended, counts })
    }

    /// Lets `length` of true time pass. Returns what has happened since the load began.
    ///
    /// # Errors
    /// A promise that was not kept.
    pub fn run(&mut self, length: Duration) -> Result<SteadyCounts, Violation> {
        let until = self.sim.now() + length;
        loop {
            self.take_seen()?;
            let Some((host, slot)) = self.ended.pop() else {
                if self.sim.next_at().is_none_or(|at| at >= until) {
                    break;
                }
                self.sim.step();
                continue;
            };
            self.read(host, slot);
            self.sim.end_turn(host);
        }
        self.sim.advance_to(until);
        self.watch.check_end(&self.sim)?;
        Ok(SteadyCounts { frame_events: self.sim.frame_events(), ..self.counts })
    }

    /// Takes in what has happened.
    fn take_seen(&mut self) -> Result<(), Violation> {
        let mut all = core::mem::take(&mut self.seen);
        all.clear();
        self.sim.swap_seen(&mut all);
        for seen in &all {
            self.watch.take(&self.sim, seen)?;
            let What::Completed(completion) = &seen.what else { continue };
            let is_ok = completion.status == OpStatus::Ok;
            self.counts.ok += u64::from(is_ok);
            self.counts.failed += u64::from(!is_ok);
            self.ended.push((seen.node, completion.slot));
        }
        self.seen = all;
        self.watch.check(&self.sim)
    }

    /// Reads from another host.
    fn read(&mut self, host: NodeId, slot: CommandSlotId) {
        let hosts = self.hosts.len();
        let other = 1 + self.prng.below(hosts as u64 - 1) as usize;
        let [own, target] = [0, other].map(|it| &self.hosts[(host.index() + it) % hosts]);
        let (initiator, responder, pid) = (own.address, target.address, PID);
        let binding = KeyBinding { initiator, responder, pid, op_type: OpType::Read };
        let command = Command {
            slot,
            class: ClassOfService::Latency,
            responder,
            remote_region: target.served,
            key: target.key.derive(&binding),
            op: CommandOp::Read(Transfer {
                op_size: OP_SIZE_MAX,
                remote_offset: 0,
                local_region: own.sink,
                local_offset: 0,
            }),
        };
        self.sim.issue(host, command).expect("the slot is free, and is the application's");
    }
}

fn serve(sim: &mut Sim, host: NodeId) -> Host {
    sim.configure_slots(host, 0..SLOTS as u16, PID);
    let address = sim.nic(host).config().place().addresses.iter().next();
    let [high, low] = host.0.to_be_bytes();
    let key = RegionKey::from_bytes([high; 16].map(|it| it ^ low.rotate_left(1)));
    let mut region = |permissions| {
        let memory = Arc::new(Region::new(OP_SIZE_MAX as usize).expect("a page"));
        register_row(sim, host, RegionEntry::new(memory, &key, permissions, PID))
    };
    Host {
        served: region(Permissions::READ),
        sink: region(Permissions::NONE),
        address: address.expect("it was given one"),
        key: RegionKeySchedule::new(&key),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(options: SteadyOptions) -> SteadyCounts {
        let mut steady = Steady::new(&options).unwrap();
        steady.run(Duration::from_micros(30)).unwrap();
        steady.run(Duration::from_micros(70)).unwrap()
    }

    #[test]
    fn every_host_reads_all_the_time_and_neither_seals_nor_checks_change_a_count() {
        let (seals, checks) = (Seals::AesGcm, Checks::Every);
        let options = SteadyOptions { seed: 1, hosts: 5, depth: 2, seals, checks };
        let counts = run(options);
        // Twenty round trips, of which ops wait for each other now and then.
        assert!(counts.failed == 0 && (150..=200).contains(&counts.ok), "{counts:?}");
        assert!(counts.frame_events >= 4 * counts.ok, "{counts:?}");
        let (seals, checks) = (Seals::Model, Checks::Light);
        assert_eq!(run(SteadyOptions { seals, checks, ..options }), counts);
        assert_ne!(run(SteadyOptions { seed: 2, ..options }), counts);
    }

    #[test]
    fn a_checker_remembers_what_is_under_way_and_no_more_in_a_longer_run() {
        let (seals, checks) = (Seals::AesGcm, Checks::Every);
        let options = SteadyOptions { seed: 3, hosts: 3, depth: 8, seals, checks };
        let mut steady = Steady::new(&options).unwrap();
        let mut most = 0;
        for _ in 0..20 {
            steady.run(Duration::from_micros(25)).unwrap();
            let Watch::Every(checker) = &steady.watch else { panic!("every promise is checked") };
            most = most.max(checker.remembered());
        }
        // Of 24 reads under way, twice as many ops, and two frames each.
        assert!(steady.counts.ok > 1000 && most <= 24 * (2 + 2), "{most}");
    }
}
