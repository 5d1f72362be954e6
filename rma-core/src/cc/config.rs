//! Settings of congestion control: the paper's constants, and what the paper leaves open (1RMA §6,
//! Algorithm 1).

use core::time::Duration;

use thiserror::Error;

use super::{
    Aimd, Controller, Fixed, Own, Policy, Signal, Swift,
    window::{OpCharge, Pacing},
};
use crate::{
    limits::{COMMAND_SLOTS_MAX, OP_SIZE_MAX},
    op::Moves,
};

/// The algorithm by which windows react.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// Algorithm 1 for the local window, its twin for the remote ones: the paper's.
    #[default]
    Aimd,
    /// The paper's baseline of figure 15c: each remote window reacts to `total_delay` and to every
    /// failure, and there is no local one.
    TotalDelayOnly,
    /// Windows stay at `cwnd_initial`, and are not paced. Not in the paper.
    Fixed,
    /// Swift, with an endpoint window for the local NIC. Not in the paper.
    Swift,
    /// One of the application's own. Not in the paper.
    Own(&'static dyn Policy),
}

impl Algorithm {
    /// All of this crate.
    pub const ALL: [Self; 4] = [Self::Aimd, Self::TotalDelayOnly, Self::Fixed, Self::Swift];

    /// A short name, for command lines and tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Aimd => "aimd",
            Self::TotalDelayOnly => "total-delay-only",
            Self::Fixed => "fixed",
            Self::Swift => "swift",
            Self::Own(policy) => policy.name(),
        }
    }
}

/// The parameters that only [`Algorithm::Swift`] uses. It shares the rest: the target delays are
/// its base targets.
///
/// The publication does not give all values; those here are within what it describes.
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use]
#[non_exhaustive]
pub struct SwiftParameters {
    /// Additive increment, in ops a round trip. Above 0, at most 16. Default: 1.
    pub ai: f64,
    /// The strength of a window's reaction to the part of a delay that is above target. Above 0, at
    /// most 1. Default: 0.8.
    pub beta: f64,
    /// Maximum multiplicative decrease factor: the largest part of a window that goes in one
    /// decrease. Above 0, below 1. Default: 0.5.
    pub max_mdf: f64,
    /// The most that flow scaling adds to the target delay of a small window; zero switches it off.
    /// At most 1 s; target and range should stay below the op timeout. Default: 10 µs, two round
    /// trips.
    pub fs_range: Duration,
    /// The window, in ops, up to which flow scaling adds all of its range. Above 0. Default: 0.1.
    pub fs_min_cwnd: f64,
    /// The window, in ops, from which flow scaling adds nothing. Above `fs_min_cwnd`, at
    /// most 65535. Default: 100.
    pub fs_max_cwnd: f64,
    /// After how many round trips with timeouts in a row, nothing else between them, a window falls
    /// to `cwnd_min`. At least 1. Default: 5.
    pub retx_reset_threshold: u32,
}

impl Default for SwiftParameters {
    fn default() -> Self {
        Self {
            ai: 1.0,
            beta: 0.8,
            max_mdf: 0.5,
            fs_range: Duration::from_micros(10),
            fs_min_cwnd: 0.1,
            fs_max_cwnd: 100.0,
            retx_reset_threshold: 5,
        }
    }
}

/// Settings of congestion control. Nothing is believed until [`CcConfigBuilder::build`].
///
/// The default is the paper's: its constants, and for what it does not give (target delays, limits
/// and start of windows) values for its network, 100 Gbps and a round trip of 5 µs. For a software
/// engine see [`CcConfigBuilder::software`].
#[derive(Clone, Copy, Debug)]
#[must_use]
#[non_exhaustive]
pub struct CcConfigBuilder {
    /// The algorithm by which windows react. Default: Algorithm 1.
    pub algorithm: Algorithm,
    /// OpSize: what transfers are cut into, in bytes; a window counts ops of this size. 1 to 4096.
    /// Default: 4096.
    pub op_size: u32,
    /// The least that an op takes from a window, in bytes. 1 to `op_size`. Default: `op_size` as it
    /// is by default, so that every op counts as one, which is the paper's way. Smaller: small ops
    /// take less of a window, so more of them are outstanding at once, and each moves the window
    /// less.
    pub op_charge_min: u32,
    /// How many remote windows there are: remote NICs, twice where ops go both ways. Those that
    /// nobody holds are remembered until their place is needed. 1 to 1,048,576. Default: 1024,
    /// about 0.2 KiB each.
    pub remotes: u32,
    /// The round-trip time of a read when nothing waits: what RTT starts from, before ops have
    /// measured it. 1 ns to 1 s. Default: 5 µs.
    pub rtt: Duration,
    /// The target of `issue_delay`, for the local window. 1 ns to 1 s, and below the NIC's dispatch
    /// timeout, or ops are shed before their delay shows. Default: 1.5 µs, four ops of 4 KiB at 100
    /// Gbps. Below 1.3 µs, what a decrease by a delay of twice the target leaves does not fill the
    /// link of the paper's network; above 1.7 µs, a transfer alone has so large a window that one
    /// which joins it needs longer for its share.
    pub issue_target_delay: Duration,
    /// The target of `remote_delay` for reads. 1 ns to 1 s, above `rtt` and below the NIC's
    /// timeout. Default: 7.5 µs, half an RTT in queues.
    pub inbound_target_delay: Duration,
    /// The target of `remote_delay` for writes, which take two round trips (§5.1). 1 ns to 1 s.
    /// Default: 12.5 µs, the same half RTT in queues.
    pub outbound_target_delay: Duration,
    /// AI, additive increment, in ops a round trip. Above 0, at most 16. Default: the paper's 0.25.
    pub ai: f64,
    /// MD: what a decrease by delay leaves of a window at least. Above 0, at most 1. Default: the
    /// paper's 0.5.
    pub md: f64,
    /// β: how strongly a window reacts to the part of a delay that is above target. Above 0, at
    /// most 1. Default: the paper's 0.8.
    pub beta: f64,
    /// TIMEOUT_DECR: what a failure leaves of a window. Above 0, at most 1. Default: the paper's
    /// 0.1.
    pub timeout_decr: f64,
    /// CWND_MIN, in ops: how slow a window can get, one op in RTT / CWND_MIN. 0.000001 to 1.
    /// Default: 0.01, one op in half a millisecond at 5 µs. The reciprocal bounds how many windows
    /// can share one bottleneck.
    pub cwnd_min: f64,
    /// The least that delays alone leave of a window, in ops; NACK and timeouts take it further
    /// down, to `cwnd_min`. 0.000001 to 65535; below `cwnd_min` it has no effect. Default: 0.01, as
    /// in the paper. Larger: hosts whose delays are not those of queues (engines that sleep or are
    /// descheduled, a round trip that is longer than was configured) go on at a good pace; and a
    /// bottleneck that more hosts share than fit with so many ops each loses frames before it is
    /// left in peace.
    pub cwnd_delay_min: f64,
    /// CWND_MAX, in ops. 1 to 65535. Default: 64, four times the bandwidth-delay product.
    pub cwnd_max: f64,
    /// The window of a remote NIC that is new, and the local one at the start, in ops. `cwnd_min`
    /// to `cwnd_max`. Default: 16, the bandwidth-delay product. An increment of 0.25 a round trip
    /// fills a link only from near there: the paper's transfers ramp up to 15 ops within 8 round
    /// trips, and solicitation makes it safe.
    pub cwnd_initial: f64,
    /// For [`Algorithm::Swift`].
    pub swift: SwiftParameters,
}

impl Default for CcConfigBuilder {
    //= 1rma#6-additive-increase
    //= 1rma#6-multiplicative-decrease
    //= 1rma#6-dispatch-timeout
    fn default() -> Self {
        Self {
            algorithm: Algorithm::default(),
            op_size: OP_SIZE_MAX,
            op_charge_min: OP_SIZE_MAX,
            remotes: 1024,
            rtt: Duration::from_micros(5),
            issue_target_delay: Duration::from_nanos(1_500),
            inbound_target_delay: Duration::from_nanos(7_500),
            outbound_target_delay: Duration::from_nanos(12_500),
            ai: 0.25,
            md: 0.5,
            beta: 0.8,
            timeout_decr: 0.1,
            cwnd_min: 0.01,
            cwnd_delay_min: 0.01,
            cwnd_max: 64.0,
            cwnd_initial: 16.0,
            swift: SwiftParameters::default(),
        }
    }
}

impl CcConfigBuilder {
    /// For engines in software, on a network whose round-trip time, measured with nothing else to
    /// do, is `rtt`: 5 to 50 µs are usual.
    ///
    /// The constants are the paper's. Targets leave a whole round trip for queues, as an engine
    /// takes ops in turns and not one by one. Small ops are charged a quarter of a large one, about
    /// what their frame and its encryption cost of those of 4 KiB. Delays alone leave a window the
    /// 16 ops, 64 KiB, that it begins with: in software a delay may well be the scheduler's, and a
    /// smaller window does not make that any shorter. (With 8, `read_goodput_over_floor` and
    /// `write_goodput_over_floor` were a tenth less when this was written, and
    /// `small_beside_large_p99` was no smaller.) Nothing but NACK and timeouts goes below.
    pub fn software(rtt: Duration) -> Self {
        Self {
            op_charge_min: OP_SIZE_MAX / 4,
            rtt,
            issue_target_delay: rtt,
            inbound_target_delay: rtt.saturating_mul(2),
            outbound_target_delay: rtt.saturating_mul(3),
            cwnd_delay_min: 16.0,
            cwnd_max: 64.0,
            swift: SwiftParameters {
                fs_range: rtt.saturating_mul(2),
                ..SwiftParameters::default()
            },
            ..Self::default()
        }
    }

    /// Checks every setting and how they relate.
    ///
    /// # Errors
    /// The first setting that cannot work, with its value and the rule.
    pub fn build(self) -> Result<CcConfig, CcConfigError> {
        let Self { swift, .. } = &self;
        count("op_size", self.op_size, OP_SIZE_MAX)?;
        count("op_charge_min", self.op_charge_min, self.op_size)?;
        count("remotes", self.remotes, REMOTES_MAX)?;
        count("swift.retx_reset_threshold", swift.retx_reset_threshold, u32::MAX)?;
        delay("rtt", self.rtt, DELAY_MIN)?;
        delay("issue_target_delay", self.issue_target_delay, DELAY_MIN)?;
        delay("inbound_target_delay", self.inbound_target_delay, DELAY_MIN)?;
        delay("outbound_target_delay", self.outbound_target_delay, DELAY_MIN)?;
        delay("swift.fs_range", swift.fs_range, Duration::ZERO)?;
        for (setting, value, max) in [
            ("ai", self.ai, AI_MAX),
            ("md", self.md, 1.0),
            ("beta", self.beta, 1.0),
            ("timeout_decr", self.timeout_decr, 1.0),
            ("swift.ai", swift.ai, AI_MAX),
            ("swift.beta", swift.beta, 1.0),
        ] {
            number(setting, value, FACTOR_MIN, max)?;
        }
        number("swift.max_mdf", swift.max_mdf, FACTOR_MIN, 1.0 - FACTOR_MIN)?;
        number("cwnd_min", self.cwnd_min, FACTOR_MIN, 1.0)?;
        number("cwnd_max", self.cwnd_max, 1.0, CWND_LIMIT)?;
        number("cwnd_delay_min", self.cwnd_delay_min, FACTOR_MIN, CWND_LIMIT)?;
        number("cwnd_initial", self.cwnd_initial, self.cwnd_min, self.cwnd_max)?;
        number("swift.fs_max_cwnd", swift.fs_max_cwnd, 2.0 * FACTOR_MIN, CWND_LIMIT)?;
        number("swift.fs_min_cwnd", swift.fs_min_cwnd, FACTOR_MIN, swift.fs_max_cwnd / 2.0)?;
        Ok(CcConfig { settings: self })
    }
}

/// A window larger than a command slot table has slots would limit nothing.
const CWND_LIMIT: f64 = COMMAND_SLOTS_MAX as f64;

const REMOTES_MAX: u32 = 1 << 20;

/// More than that in a round trip, and a window would oscillate by whole windows.
const AI_MAX: f64 = 16.0;

/// "Above zero", for factors and windows.
const FACTOR_MIN: f64 = 1e-6;

const DELAY_MIN: Duration = Duration::from_nanos(1);

/// Longer delays are not congestion but an outage.
const DELAY_MAX: Duration = Duration::from_secs(1);

fn number(setting: &'static str, value: f64, min: f64, max: f64) -> Result<(), CcConfigError> {
    // Not a number is in no range.
    if (min..=max).contains(&value) {
        Ok(())
    } else {
        Err(CcConfigError::Number { setting, value, min, max })
    }
}

fn count(setting: &'static str, value: u32, max: u32) -> Result<(), CcConfigError> {
    if (1..=max).contains(&value) {
        Ok(())
    } else {
        Err(CcConfigError::Count { setting, value, max })
    }
}

fn delay(setting: &'static str, value: Duration, min: Duration) -> Result<(), CcConfigError> {
    if (min..=DELAY_MAX).contains(&value) {
        Ok(())
    } else {
        Err(CcConfigError::Delay { setting, value, min, max: DELAY_MAX })
    }
}

/// Settings that have been checked.
#[derive(Clone, Copy, Debug)]
pub struct CcConfig {
    settings: CcConfigBuilder,
}

impl CcConfig {
    /// The settings that this was built from.
    pub const fn settings(&self) -> &CcConfigBuilder {
        &self.settings
    }

    /// Returns the charge of ops on windows.
    #[must_use]
    pub fn op_charge(&self) -> OpCharge {
        OpCharge::new(self.settings.op_size, self.settings.op_charge_min)
    }

    /// A new window for the local NIC.
    #[must_use]
    pub fn local_controller(&self) -> Controller {
        let settings = &self.settings;
        let target_delay = settings.issue_target_delay;
        match settings.algorithm {
            Algorithm::Aimd => Controller::Aimd(Aimd::new(self, Signal::IssueDelay, target_delay)),
            // There is none: one as large as can be is never the smaller one.
            //= 1rma#7.4-total-delay-only
            Algorithm::TotalDelayOnly => Controller::Fixed(Fixed::new(settings.cwnd_max)),
            Algorithm::Fixed => Controller::Fixed(Fixed::new(settings.cwnd_initial)),
            Algorithm::Swift => {
                Controller::Swift(Swift::new(self, Signal::IssueDelay, target_delay))
            }
            Algorithm::Own(policy) => Controller::Own(Own::new(self, || policy.local(self))),
        }
    }

    /// A new window for one remote NIC, for ops whose data `moves` so.
    #[must_use]
    pub fn remote_controller(&self, moves: Moves) -> Controller {
        let settings = &self.settings;
        //= 1rma#6-remote-window
        let target_delay = match moves {
            Moves::In => settings.inbound_target_delay,
            Moves::Out => settings.outbound_target_delay,
        };
        match settings.algorithm {
            Algorithm::Aimd => Controller::Aimd(Aimd::new(self, Signal::RemoteDelay, target_delay)),
            // As much delay as the two windows would have allowed.
            Algorithm::TotalDelayOnly => {
                let target_delay = settings.issue_target_delay + target_delay;
                Controller::Aimd(Aimd::new(self, Signal::TotalDelay, target_delay))
            }
            Algorithm::Fixed => Controller::Fixed(Fixed::new(settings.cwnd_initial)),
            Algorithm::Swift => {
                Controller::Swift(Swift::new(self, Signal::RemoteDelay, target_delay))
            }
            Algorithm::Own(policy) => {
                Controller::Own(Own::new(self, || policy.remote(self, moves)))
            }
        }
    }

    /// The round-trip time of ops whose data `moves` so, before any is measured.
    pub(super) fn rtt(&self, moves: Moves) -> Duration {
        match moves {
            Moves::In => self.settings.rtt,
            Moves::Out => self.settings.rtt * 2,
        }
    }

    pub(super) fn pacing(&self) -> Pacing {
        match self.settings.algorithm {
            Algorithm::Aimd | Algorithm::TotalDelayOnly => Pacing::Always,
            Algorithm::Fixed | Algorithm::Swift => Pacing::BelowOneOp,
            Algorithm::Own(policy) if policy.is_paced() => Pacing::Always,
            Algorithm::Own(_) => Pacing::BelowOneOp,
        }
    }
}

/// A setting that cannot work.
#[derive(Clone, Copy, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum CcConfigError {
    /// A window or a factor that is too small, too large, or not a number.
    #[error("`{setting}` is {value}: it must be in {min}..={max}")]
    Number {
        /// The setting.
        setting: &'static str,
        /// The refused value.
        value: f64,
        /// The smallest that can work.
        min: f64,
        /// The largest that can work, with the other settings.
        max: f64,
    },
    /// A size or a number of things is zero, or too large.
    #[error("`{setting}` is {value}: it must be in 1..={max}")]
    Count {
        /// The setting.
        setting: &'static str,
        /// The refused value.
        value: u32,
        /// The largest that can work, with the other settings.
        max: u32,
    },
    /// A delay is too short to be measured, or too long to be congestion.
    #[error("`{setting}` is {value:?}: it must be in {min:?}..={max:?}")]
    Delay {
        /// The setting.
        setting: &'static str,
        /// The refused value.
        value: Duration,
        /// The shortest that can work.
        min: Duration,
        /// The longest that can work.
        max: Duration,
    },
}

settings!(SwiftParameters, CcConfigBuilder);
