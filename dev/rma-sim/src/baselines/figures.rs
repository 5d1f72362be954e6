//! The paper's figures 10, 12 and 13 from the systems that it compares with, point by point, and
//! what loss and peers cost them.
//!
//! Each point is a run of its own, so that a caller may compute them in any order. A latency is
//! told beside that of the same read in an idle network of the same system: their ratio is the
//! paper's slowdown.

use core::time::Duration;

use super::{
    constants::{Constant, Constants},
    error::BaselineError,
    fabric::FabricOptions,
    outcome::{Latencies, Outcome},
    rdma::RdmaOptions,
    system::{System, run},
    work::Work,
};
use crate::{
    flows::traffic::{Destination, Size, Traffic},
    prng::Chance,
};

/// All that a point depends on besides its place on the axis.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The system that hosts have.
    pub system: System,
    /// The constants of the models.
    pub constants: Constants,
    /// The seed of every random number of the run.
    pub seed: u64,
    /// How many ops are measured.
    pub measured: u32,
}

/// A point of a figure: reads of one length.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// How much the reads transfer, in bytes.
    pub len: u64,
    /// How long such a read takes in an idle network.
    pub idle: Duration,
    /// The outcome of the run, with latencies of other lengths besides.
    pub outcome: Outcome,
}

impl Point {
    /// How long reads of this length took.
    #[must_use]
    pub fn latencies(&self) -> &Latencies {
        self.outcome.of(self.len)
    }

    /// How many times the idle latency that is which `part` of the reads, of 1, do not exceed.
    #[must_use]
    pub fn slowdown(&self, part: f64) -> f64 {
        self.latencies().at(part).as_secs_f64() / self.idle.as_secs_f64()
    }
}

/// The hosts of figures 10 and 13.
pub const HOSTS: u32 = 40;

/// The reads of figure 10, and the small ones of figure 13.
pub const CHUNK: u64 = 4 << 10;

/// The large reads of figure 13.
pub const LARGE: u64 = 200 << 10;

/// The small reads of figure 12.
pub const SMALL: u64 = 64;

/// How many of the reads of figure 13 are small; nine tenths of all bytes are then in large ones.
const CHUNKS_OF_13: f64 = 0.85;

/// The small reads of figure 12 in a second.
const SMALL_RATE: f64 = 10_000.0;

/// The loads of figure 10.
pub const LOADS_10: [f64; 9] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9];

/// The loads of figure 13.
pub const LOADS_13: [f64; 8] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8];

/// The large transfers of figure 12; `None`: small reads alone.
pub const SIZES_12: [Option<u64>; 11] = [
    None,
    Some(4 << 10),
    Some(8 << 10),
    Some(16 << 10),
    Some(32 << 10),
    Some(64 << 10),
    Some(128 << 10),
    Some(256 << 10),
    Some(512 << 10),
    Some(1 << 20),
    Some(4 << 20),
];

/// How long a read of `len` bytes takes in an idle network with links of `rate`.
///
/// # Errors
/// If there is no such read.
pub fn idle(setting: &Setting, rate: u64, len: u64) -> Result<Duration, BaselineError> {
    let traffic = Traffic { rate, load: 1e-3, ..Traffic::reads(len) };
    let work = Work { traffic, measured: 1, transfers: None };
    let outcome = run(&lossless(setting.system), &setting.constants, &work, setting.seed)?;
    Ok(outcome.of(len).at(1.0))
}

/// The system in a network that loses nothing.
const fn lossless(system: System) -> System {
    match system {
        System::Rdma(options) => {
            System::Rdma(RdmaOptions { fabric: FabricOptions::LOSSLESS, ..options })
        }
        System::Software => System::Software,
    }
}

fn point(
    setting: &Setting,
    len: u64,
    traffic: Traffic,
    transfers: Option<u64>,
) -> Result<Point, BaselineError> {
    let idle = idle(setting, traffic.rate, len)?;
    let work = Work { traffic, measured: setting.measured, transfers };
    let outcome = run(&setting.system, &setting.constants, &work, setting.seed)?;
    Ok(Point { len, idle, outcome })
}

/// Figure 10: each of 40 hosts reads 4 KiB at a time from any other, by chance, at 100 Gbit/s.
///
/// # Errors
/// If there is no such load.
pub fn figure_10(setting: &Setting, load: f64) -> Result<Point, BaselineError> {
    let traffic = Traffic { hosts: HOSTS, load, ..Traffic::reads(CHUNK) };
    point(setting, CHUNK, traffic, None)
}

/// Figure 12: a host reads 64 B at a time from another, by chance, ten thousand times a second,
/// beside one transfer of `large` bytes after the other on the same connection.
///
/// # Errors
/// If there is nothing to measure.
pub fn figure_12(setting: &Setting, large: Option<u64>) -> Result<Point, BaselineError> {
    let mut traffic = Traffic { destination: Destination::Fixed(1), ..Traffic::reads(SMALL) };
    let wire = setting.system.framing(&setting.constants).wire_bytes(SMALL);
    traffic.load = SMALL_RATE * wire as f64 / traffic.rate as f64;
    point(setting, SMALL, traffic, large)
}

/// Figure 13: the small reads, 4 KiB, beside large ones, 200 KiB, each of 40 hosts from any other,
/// by chance.
///
/// # Errors
/// If there is no such rate or load.
pub fn figure_13(setting: &Setting, rate: u64, load: f64) -> Result<Point, BaselineError> {
    let sizes = sizes_13();
    let traffic = Traffic { hosts: HOSTS, rate, load, sizes, ..Traffic::reads(CHUNK) };
    point(setting, CHUNK, traffic, None)
}

/// The reads of figure 13.
#[must_use]
pub fn sizes_13() -> Vec<Size> {
    vec![Size { len: CHUNK, share: CHUNKS_OF_13 }, Size { len: LARGE, share: 1.0 - CHUNKS_OF_13 }]
}

/// Beyond the paper: reads of `len` bytes of one host from another, with so much load, in a network
/// that loses packets.
///
/// # Errors
/// If there is no such load, nothing to read, or the system is a model without losses.
pub fn under_loss(
    setting: &Setting,
    loss: Chance,
    len: u64,
    load: f64,
) -> Result<Point, BaselineError> {
    let System::Rdma(options) = setting.system else { return Err(BaselineError::Loss) };
    let fabric = FabricOptions { loss, ..options.fabric };
    let system = System::Rdma(RdmaOptions { fabric, ..options });
    let traffic = Traffic { load, destination: Destination::Fixed(1), ..Traffic::reads(len) };
    point(&Setting { system, ..setting.clone() }, len, traffic, None)
}

/// The bytes of state that a host has for so many peers: in NICs and for them, or for software.
#[must_use]
pub fn state(system: System, constants: &Constants, peers: u64) -> f64 {
    let each = match system {
        System::Rdma(_) => Constant::ConnectionState,
        System::Software => Constant::SoftwareState,
    };
    constants.get(each) * peers as f64
}
