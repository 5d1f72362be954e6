//! The paper's curves: which NIC, which load, and every parameter with where it is from.
//!
//! None was chosen by what comes out, but for two that are said to be fitted: the penalty of the
//! commercial NIC of figures 10 and 11, and that of figure 1.

use super::{
    cache::{CacheOptions, Replacement},
    frames::Wire,
    groups::GroupOptions,
    load::Workload,
    rc::{Order, RcOptions},
    run::{Load, Outcome, System, run},
    stateless::{Fusion, StarOptions},
    time::Picos,
};

/// An octet at 10 Gbit/s: the testbed's link (§V-A1).
pub const OCTET: Picos = Picos(800);
/// An octet at 100 Gbit/s: the link of figure 1 (§II-B1).
pub const OCTET_OF_FIGURE_1: Picos = Picos(80);
/// Connections whose state the FPGA NIC holds: 30 KB of 256 octets each (§V-A2).
pub const FPGA_ENTRIES: u32 = 120;
/// Connections whose state the commercial NIC of the testbed holds: as the paper measured (§V-A2).
pub const CX3_ENTRIES: u32 = 240;
/// Connections up to which the NIC of figure 1 keeps its peak: the paper's measurement (§I).
pub const CX6_ENTRIES: u32 = 450;
/// ScalaRDMA: connections in a group and slot of time (§V-A2).
pub const GROUP: (u32, Picos) = (240, Picos::nanos(20_000));
/// ScalaRDMA: what a switch to the next group takes when nothing is under way. Chosen, as the paper
/// has no number: threads are scheduled and states loaded. The sweep has 0 to 4 us.
pub const GROUP_SWITCH: Picos = Picos::nanos(2_000);
/// The penalty of the commercial NIC, which fetches several states at once: fitted to the 2.2 times
/// of §V-B by a model that was written before this one. Not fitted again.
pub const CX3_PENALTY: Picos = Picos::nanos(400);
/// The time of a frame in the pipeline of the NIC of figure 1. The paper's text has no number of
/// its peak, so this is 20 M READs/s, and only ratios count: where the pipeline is the limit, they
/// do not depend on it, as the penalty is fitted in its units.
pub const FIGURE_1_SERVICE: Picos = Picos::nanos(25);
/// The level that figure 1 falls to beyond 3000 connections: "below 70 %" (§II-B1). The penalty is
/// fitted to it.
pub const FIGURE_1_AT_3000: f64 = 0.70;

/// The parameters that can be chosen, and are swept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// How long frames are.
    pub wire: Wire,
    /// Switch and cable, one way. Chosen: 1 us; swept, 0.5 to 2.
    pub delay: Picos,
    /// From a completion until what follows is posted. Chosen: 1 us; swept with the delay.
    pub host: Picos,
    /// How long a turn of the stateless side's engine is. Ours: 1 us; swept, 0 to 4.
    pub turn: Picos,
    /// The cost of a missing state at the FPGA NIC: 1 us, one read over PCIe; literature of that
    /// generation has 0.5 to 1; swept, 0.1 to 2.
    pub penalty: Picos,
    /// The same of the commercial NIC.
    pub cx3_penalty: Picos,
    /// The rule that chooses the state to evict. The paper does not say; random is swept.
    pub replacement: Replacement,
    /// The order of frames through a NIC's one pipeline. The paper does not say: by arrival, as one
    /// queue before one pipeline is the plainest reading; by turns is swept, as it matters.
    pub order: Order,
    /// The time of a switch of groups.
    pub group_switch: Picos,
}

impl Default for Setting {
    fn default() -> Self {
        Self {
            wire: Wire::PAPER,
            delay: Picos::nanos(1_000),
            host: Picos::nanos(1_000),
            turn: Picos::nanos(1_000),
            penalty: Picos::nanos(1_000),
            cx3_penalty: CX3_PENALTY,
            replacement: Replacement::LeastRecentlyUsed,
            order: Order::Arrival,
            group_switch: GROUP_SWITCH,
        }
    }
}

/// A curve of figures 10 and 11, or one to compare them with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Curve {
    /// StaR with so many fewer frames.
    Star(Fusion),
    /// The FPGA NIC with reliable connections: "RDMA on FPGA".
    RdmaOnFpga,
    /// The commercial NIC: "RDMA".
    Rdma,
    /// Groups of connections on the commercial NIC.
    ScalaRdma,
    /// Reliable connections on a NIC that has all state: what the link allows them.
    Unlimited,
}

impl Curve {
    /// StaR as it is by default.
    pub const STAR: Self = Self::Star(Fusion::DEFAULT);
    /// StaR by the paper's sequence.
    pub const FAITHFUL: Self = Self::Star(Fusion::FAITHFUL);
    /// Those that are drawn.
    pub const DRAWN: [Self; 8] = [
        Self::STAR,
        Self::Star(Fusion::THREE_ANSWERS),
        Self::Star(Fusion::FRAMES),
        Self::FAITHFUL,
        Self::RdmaOnFpga,
        Self::Rdma,
        Self::ScalaRdma,
        Self::Unlimited,
    ];

    /// Returns its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Star(fusion) if fusion.packets && fusion.one_answer => "StaR",
            Self::Star(fusion) if fusion.packets => "StaR, three answers to a WQEP",
            Self::Star(fusion) if fusion.one_ea => "StaR, a frame a packet",
            Self::Star(_) => "StaR, the paper's sequence",
            Self::RdmaOnFpga => "RDMA on FPGA",
            Self::Rdma => "RDMA",
            Self::ScalaRdma => "ScalaRDMA",
            Self::Unlimited => "RC without limit",
        }
    }

    /// The server's NIC.
    #[must_use]
    pub const fn system(self, setting: &Setting) -> System {
        let &Setting { turn, penalty, cx3_penalty, replacement, order, group_switch, .. } = setting;
        let (entries, penalty) = match self {
            Self::RdmaOnFpga => (FPGA_ENTRIES, penalty),
            Self::Rdma => (CX3_ENTRIES, cx3_penalty),
            Self::Star(fusion) => return System::Star(StarOptions { fusion, turn }),
            Self::ScalaRdma => {
                let (size, slot) = GROUP;
                let groups = Some(GroupOptions { size, slot, switch: group_switch });
                return System::Rc(RcOptions { cache: None, service: Picos::ZERO, order, groups });
            }
            Self::Unlimited => {
                let service = Picos::ZERO;
                return System::Rc(RcOptions { cache: None, service, order, groups: None });
            }
        };
        let cache = Some(CacheOptions { entries, penalty, replacement });
        System::Rc(RcOptions { cache, service: Picos::ZERO, order, groups: None })
    }

    /// Runs it and returns the outcome.
    #[must_use]
    pub fn run(self, setting: &Setting, workload: Workload, connections: u32) -> Outcome {
        let &Setting { wire, delay, host, .. } = setting;
        let load = Load { workload, connections, wire, octet: OCTET, delay, host };
        run(&self.system(setting), &load)
    }
}

/// READs a second of figure 1, with so many connections and what a missing state costs.
#[must_use]
pub fn figure_1(setting: &Setting, connections: u32, penalty: Picos) -> Outcome {
    let &Setting { wire, delay, host, replacement, order, .. } = setting;
    let cache = Some(CacheOptions { entries: CX6_ENTRIES, penalty, replacement });
    let nic = RcOptions { cache, service: FIGURE_1_SERVICE, order, groups: None };
    let octet = OCTET_OF_FIGURE_1;
    let load = Load { workload: Workload::Read, connections, wire, octet, delay, host };
    run(&System::Rc(nic), &load)
}
