//! The options of a simulated network of hosts: one to count hops on, or one drawn from a seed.

use core::{fmt, time::Duration};

use rma_core::{
    addr::HostAddr,
    executor::ExecutorConfig,
    nic::{NicConfigBuilder, NicPlace, ReceiveLenMax, Timing},
    time::Instant,
};

use crate::{
    net::{
        clock::ClockOptions,
        frame::NodeId,
        link::{Faults, JitterLaw, LinkOptions},
        node::{NodeOptions, Pace},
        sim::StallOptions,
    },
    prng::{Chance, Prng},
};

/// All that a network depends on.
#[derive(Clone, Debug)]
pub struct NetworkOptions {
    /// The seed of every random number of the run.
    pub seed: u64,
    /// How many hosts there are, at least one.
    pub nodes: u16,
    /// Each host's NIC.
    pub nic: NicConfigBuilder,
    /// Each host's MTU: the largest IP packet that it sends and receives, in bytes.
    pub mtu: u16,
    /// The pace at which frames come to NICs and leave them.
    pub pace: Pace,
    /// Each device's rate of sending, in bytes a second. The largest number: it takes no time.
    pub rate: u64,
    /// How many packets a device holds for an engine that does not run; further ones are lost.
    pub receive_ring: u32,
    /// The way from each host to each: its delay is D, one half round trip.
    pub link: LinkOptions,
    /// How often a host is stopped while it handles a frame.
    pub stalls: StallOptions,
    /// The clocks of the first hosts; those of all others are right.
    pub clocks: Vec<ClockOptions>,
    /// Whether everything that happens is printed.
    pub trace: bool,
}

impl NetworkOptions {
    /// A network on which hops can be counted: each frame takes exactly one microsecond, and
    /// nothing else takes any time. Frames of 4 KiB are not cut; nothing goes wrong.
    #[must_use]
    pub fn exact(nodes: u16) -> Self {
        let delay = Duration::from_micros(1);
        Self {
            seed: 0,
            nodes,
            nic: NicConfigBuilder::default().with(|it| it.rtt = delay * 2),
            mtu: 9000,
            pace: Pace::Hardware,
            rate: u64::MAX,
            receive_ring: 1024,
            link: LinkOptions {
                delay,
                jitter: Duration::ZERO,
                law: JitterLaw::Uniform,
                rate: u64::MAX,
                queue: u64::MAX,
                faults: Faults::default(),
            },
            stalls: StallOptions::default(),
            clocks: Vec::new(),
            trace: false,
        }
    }

    /// A network that `seed` says all of: delays, reordering, loss, copies, damage, replays, MTU,
    /// how engines take turns, and clocks that are wrong. Tables have room for what few processes
    /// have under way; timeouts are so long that ops which lose nothing succeed.
    #[must_use]
    pub fn from_seed(seed: u64, nodes: u16) -> Self {
        let mut prng = Prng::new(seed).fork(0x4057);
        let delay = Duration::from_nanos(500 + prng.magnitude(20_000));
        // One in eight keeps frames in order.
        let jitter = delay.mul_f64(prng.choose(&[0.0, 0.3, 1.0, 1.0, 2.0, 2.0, 4.0, 4.0]));
        let mut fault = |most| {
            let chance = prng.magnitude(most) as u32;
            Chance::ppm(chance * u32::from(prng.below(2) > 0))
        };
        let (loss, duplicate) = (fault(150_000), fault(300_000));
        let (replay, corrupt) = (fault(50_000), fault(100_000));
        let turn = Duration::from_nanos(prng.magnitude(delay.as_nanos() as u64));
        // Room for the frames of several ops before this one's, wherever they wait.
        let turnaround = (delay + jitter + turn) * 2 + Duration::from_micros(60);
        let dispatch = turnaround * prng.between(1, 3) as u32;
        let timing = Timing::new(dispatch, dispatch + turnaround * prng.between(2, 5) as u32);
        let clock = |prng: &mut Prng| ClockOptions {
            starts_at: Instant::from_nanos(prng.magnitude(1 << 60)),
            drift_ppm: prng.below(2001) as i32 - 1000,
        };
        Self {
            seed,
            nodes,
            nic: NicConfigBuilder::default().with(|it| {
                it.command_slots = 64;
                it.regions = 64;
                it.inbound_queue = prng.choose(&[16, 64]);
                it.pending_writes = prng.choose(&[8, 32]);
                it.outcome_records = prng.choose(&[64, 512]);
                it.solicitation_window = prng.choose(&[16 << 10, 64 << 10, 256 << 10]);
                it.timing = timing;
                it.rtt = turnaround;
            }),
            mtu: prng.choose(&[300, 576, 1500, 1500, 9000, 9000]),
            pace: prng.choose(&[Pace::Hardware, Pace::Engine { turn }]),
            rate: 12_500_000_000,
            receive_ring: prng.choose(&[4, 64, 256]),
            link: LinkOptions {
                delay,
                jitter,
                faults: Faults {
                    loss,
                    duplicate,
                    replay,
                    replay_within: turnaround * prng.choose(&[1, 8, 64]),
                    corrupt,
                },
                ..LinkOptions::default()
            },
            stalls: StallOptions {
                chance: Chance::ppm(prng.choose(&[0, 0, 0, 10_000])),
                length_max: timing.timeout * 2,
            },
            clocks: (0..nodes).map(|_| clock(&mut prng)).collect(),
            trace: false,
        }
    }

    /// These options, with what `change` makes of them.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// Returns the settings of a CommandExecutor on one of the hosts.
    pub fn executor(&self) -> ExecutorConfig {
        let NicConfigBuilder { timing, rtt, .. } = self.nic;
        ExecutorConfig::new(ReceiveLenMax::of_mtu(self.mtu.into()), timing.timeout, rtt)
    }

    pub(super) fn node(&self, NodeId(number): NodeId) -> NodeOptions {
        let [high, low] = number.to_be_bytes();
        NodeOptions {
            nic: self.nic,
            place: NicPlace::at(HostAddr::from([10, 0, high, low])),
            mtu: self.mtu,
            rate: self.rate,
            pace: self.pace,
            receive_ring: self.receive_ring,
            clock: self.clocks.get(usize::from(number)).copied().unwrap_or_default(),
        }
    }
}

impl fmt::Display for NetworkOptions {
    /// In one line, without what only settles how large tables are.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, nodes, nic, mtu, pace, link, stalls, .. } = self;
        let LinkOptions { delay, jitter, faults, .. } = link;
        write!(
            f,
            "seed {seed}: {nodes} hosts, MTU {mtu}, {pace:?}, {delay:?} + {jitter:?}, {faults:?}, {:?}, stalls {stalls:?}",
            nic.timing
        )
    }
}
