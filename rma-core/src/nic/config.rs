//! Settings of one NIC: a builder whose fields anybody may set, the place of the NIC, which whoever
//! opens it knows, and what `build` makes of both.

use core::time::Duration;

use thiserror::Error;

use super::{gather::wait_nanos_max, solicitation_window::SolicitationWindow};
use crate::{
    addr::{HostAddr, LocalAddresses},
    assumed,
    backend::ReceiveLenMax,
    crypto::{CounterBlock, EngineId},
    fair_queue::BucketSecret,
    limits::{
        COMMAND_SLOTS_MAX, ENGINES_MAX, INBOUND_QUEUE_MAX, OP_SIZE_MAX,
        PENDING_WRITES_AND_RECORDS_MAX, PENDING_WRITES_MAX, REGIONS_MAX, TIMEOUT_MAX, TIMEOUT_MIN,
    },
    op::OpType,
    port::Port,
    time::nanos,
    wire,
};

//= 1rma#6.1-timeouts
//= type=deviation
/// How long ops may take. Constants per kind, so that a FIFO of each kind is in deadline order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct Timing {
    /// How long an op may wait to enter service. Longer: congestion at home is noticed later.
    /// Shorter: a short burst is shed that would have been served.
    pub dispatch_timeout: Duration,
    /// How long an op in service may wait for its data. Longer: a lost frame costs more, and holds
    /// its share of the solicitation window for longer. Shorter: an answer that was only late is
    /// wasted.
    ///
    /// A mutation has this long for the solicitation, and once more from there to its end (§5.1). A
    /// command so completes within `dispatch_timeout` + `timeout` (READ) or `dispatch_timeout` + 2
    /// × `timeout` (WRITE, Rekey), promise P1.
    pub timeout: Duration,
}

impl Timing {
    /// These two.
    pub const fn new(dispatch_timeout: Duration, timeout: Duration) -> Self {
        Self { dispatch_timeout, timeout }
    }

    /// The paper's setting for a hardware NIC on a fabric with the given RTT (§6.1): 10 µs to enter
    /// service, 5 RTT for the data. Too tight for an engine thread that can be descheduled.
    pub const fn paper(rtt: Duration) -> Self {
        Self { dispatch_timeout: Duration::from_micros(10), timeout: rtt.saturating_mul(5) }
    }

    /// A software engine's setting (not in the paper): the paper's multiples of the RTT (2 to enter
    /// service, 5 for the data), but never below `floor` for the data, which covers the time for
    /// which a scheduler may stop either engine; and 2/5 of it to enter service.
    pub fn software(rtt: Duration, floor: Duration) -> Self {
        let timeout = rtt.saturating_mul(5).max(floor);
        Self { dispatch_timeout: timeout / 5 * 2, timeout }
    }

    //= channels#P1-bounds
    /// How long an op of `op_type` may take, from its arrival in the NIC to its completion: the
    /// bound of promise P1, but for the time in which the engine does not run.
    #[must_use]
    pub fn bound(&self, op_type: OpType) -> Duration {
        let in_service = self.timeout.saturating_mul(op_type.shape().hops / 2);
        self.dispatch_timeout.saturating_add(in_service)
    }
}

impl Default for Timing {
    /// For engines on machines that are busy with other things: 100 ms for the data, several time
    /// slices of a loaded two-core machine, and 40 ms to enter service.
    fn default() -> Self {
        Self::software(assumed::RTT, assumed::TIMEOUT)
    }
}

/// The settings of one NIC. [`NicConfigBuilder::build`] checks them.
#[derive(Clone, Copy, Debug)]
#[must_use]
#[non_exhaustive]
pub struct NicConfigBuilder {
    /// The lowest value that the message counter may have; where values are reserved, they begin no
    /// lower. Default: 0.
    pub counter_start: u64,
    /// Entries of the command slot table: how many ops this host can have outstanding. Default:
    /// 1024, about 340 bytes each. What all tables take, [`Nic::memory`](super::Nic::memory) tells.
    pub command_slots: u32,
    /// Entries of the registered region table. Default: 1024, about 150 bytes each, and 0.5 KiB
    /// more when they are used.
    pub regions: u32,
    /// Entries of the inbound queue of each class of service: requests that have been authenticated
    /// and wait for their responses to be sent. Where it is full, an initiator with more of them
    /// than others is NACKed. Default: 512, about 180 bytes each.
    pub inbound_queue: u32,
    /// Entries of the pending-write table: mutations of others that have been authenticated and are
    /// not over. Half of the entries may be solicited at a time; the others wait, or are parked:
    /// solicited so long ago that they hold no window any more while others wait (P13). Fewer: an
    /// initiator that was stopped for a while finds its ops forgotten sooner, where others came
    /// meanwhile; what finds no entry is NACKed. With one entry nobody can wait, and whoever sends
    /// no data holds it for a timeout. Default: 256, about 4.3 KiB each, as each has a buffer for
    /// the data of an ordered op.
    pub pending_writes: u32,
    /// Records of what became of the recorded ops of others: SEND, NOTIFY, WRITE_WITH_IMM, ordered
    /// WRITE and atomics. One is in use from when the op's data is asked for; that of an op that
    /// was applied until its initiator says that it knows, or for four timeouts. For one region an
    /// initiator has half of them at most, and gets no more than are free. Fewer: where initiators
    /// fall silent after an op, others are NACKed sooner; with fewer than twice `pending_writes`,
    /// replayed requests for a region are enough. With `pending_writes` at most 65,535. Default:
    /// 4096, about 60 bytes each.
    pub outcome_records: u32,
    /// Bytes of solicited data that may be inbound at once. Below the bandwidth-delay product
    /// goodput falls; far above it, incast bursts grow. The paper compares 48, 64 and 96 KB at 100
    /// Gbps and 5 µs (§7.5). Mutations of others have at most half of it, and room for one op: the
    /// other half is for this host's reads alone. Default: 256 KiB, as a software engine's RTT is
    /// longer.
    pub solicitation_window: u32,
    /// How long ops may take.
    pub timing: Timing,
    /// The network's round-trip time, for the NACK threshold, and for how long a mutation whose
    /// data does not come keeps its share of the window while others wait. Too low: where others
    /// wait, honest mutations are parked as well, and if that fills the table, forgotten, and end
    /// with TIMEOUT where they would have been NACKed. Default: 10 µs.
    pub rtt: Duration,
    /// The rate at which this NIC answers reads, in bytes a second, for the NACK threshold: a
    /// request is NACKed when more than (`timeout` - `rtt` - `dispatch_timeout`) × `bandwidth`
    /// bytes of answers wait before it (§6.1). Too high: answers come too late and are wasted. Too
    /// low: requests are refused that would have been answered in time. Default: 1.25 GB/s, as 10
    /// Gb/s Ethernet.
    pub bandwidth: u64,
    /// Failure notices a second to senders that did not authenticate, in the long run; and as many,
    /// but 1,000 at least, to those who have used an old key. 0: strangers are told nothing.
    /// Default: 100,000.
    pub notices_per_second: u32,
}

/// The place of a NIC: the facts about its host and its device that its opener knows. They are no
/// settings.
#[derive(Clone, Copy, Debug)]
#[must_use]
#[non_exhaustive]
pub struct NicPlace {
    /// The host's addresses. At least one is needed.
    pub addresses: LocalAddresses,
    /// The UDP port that its frames go to, the same for all hosts of a deployment. Default:
    /// [`Port::ONE_RMA`].
    pub port: Port,
    /// The number of this engine among those of its host. Default: 0. Two engines of one host with
    /// one number would repeat IVs.
    pub engine: EngineId,
    /// How many engines the host has, each with a NIC of the same settings and the same region
    /// names: 1 to [`ENGINES_MAX`]. Where there are several, `engine` counts them from 0. Default:
    /// 1.
    pub engines: u16,
    /// The first value of the message counter, if it may be as low as that
    /// ([`NicConfigBuilder::counter_start`]): above every value that this engine number has used
    /// before on this host. Default: 0, right for a simulation only.
    pub counter_start: u64,
    /// The end of the values reserved for this engine: it seals none with this one or above, before
    /// it gets another block ([`super::Nic::add_counter_block`]). Default: the largest, right for a
    /// simulation only.
    pub counter_end: u64,
    /// The largest frame that the device can receive. Default: what an MTU of 1500 leaves.
    pub receive_len_max: ReceiveLenMax,
    /// The secret by which initiators are spread over the lists of a queue, so that they take
    /// turns. Default: zeroes, right for a simulation only: whoever knows it can share the turns of
    /// a host of his choice.
    pub bucket_secret: BucketSecret,
}

impl NicPlace {
    /// At these addresses.
    pub fn at(addresses: impl Into<LocalAddresses>) -> Self {
        Self {
            addresses: addresses.into(),
            port: Port::ONE_RMA,
            engine: EngineId::default(),
            engines: 1,
            counter_start: 0,
            counter_end: u64::MAX,
            receive_len_max: ReceiveLenMax::default(),
            bucket_secret: BucketSecret::from_bytes([0; 16]),
        }
    }
}

impl Default for NicConfigBuilder {
    fn default() -> Self {
        Self {
            counter_start: 0,
            command_slots: 1024,
            regions: 1024,
            inbound_queue: 512,
            pending_writes: 256,
            outcome_records: 4096,
            solicitation_window: 256 << 10,
            timing: Timing::default(),
            rtt: assumed::RTT,
            bandwidth: 1_250_000_000,
            notices_per_second: 100_000,
        }
    }
}

impl NicConfigBuilder {
    /// Checks every setting for a NIC at `place`, and how they relate.
    ///
    /// # Errors
    /// The first setting that cannot work, with its value and the rule.
    pub fn build(self, place: NicPlace) -> Result<NicConfig, ConfigError> {
        let timing = self.timing;
        let NicPlace { addresses, receive_len_max, .. } = place;
        if addresses.is_empty() {
            return Err(ConfigError::NoAddress);
        }
        if place.port == Port(0) {
            return Err(ConfigError::NoPort);
        }
        let NicPlace { engine, engines, .. } = place;
        let is_one_of_them = engines == 1 || engine.0 < engines;
        if !(1..=ENGINES_MAX).contains(&engines) || !is_one_of_them {
            return Err(ConfigError::Engines { engine: engine.0, engines });
        }
        let within = |setting, value: u32, max: u32| {
            if (1..=max).contains(&value) {
                Ok(())
            } else {
                Err(ConfigError::TableSize { setting, value, max })
            }
        };
        let each = |max: u32| max / u32::from(engines);
        within("command_slots", self.command_slots, each(COMMAND_SLOTS_MAX))?;
        within("regions", self.regions, REGIONS_MAX)?;
        within("inbound_queue", self.inbound_queue, INBOUND_QUEUE_MAX)?;
        within("pending_writes", self.pending_writes, each(PENDING_WRITES_MAX))?;
        let records_max = each(PENDING_WRITES_AND_RECORDS_MAX) - self.pending_writes;
        within("outcome_records", self.outcome_records, records_max)?;
        if self.solicitation_window < OP_SIZE_MAX {
            return Err(ConfigError::WindowBelowOneOp { window: self.solicitation_window });
        }
        for (setting, value) in
            [("dispatch_timeout", timing.dispatch_timeout), ("timeout", timing.timeout)]
        {
            if !(TIMEOUT_MIN..=TIMEOUT_MAX).contains(&value) {
                return Err(ConfigError::Timeout { setting, value });
            }
        }
        let nack_threshold = self.nack_threshold()?;
        // A family without an address carries nothing.
        for address in addresses.iter() {
            let len = if address.is_ipv4() { receive_len_max.ipv4 } else { receive_len_max.ipv6 };
            if len < wire::FRAME_LEN_MIN {
                return Err(ConfigError::ReceiveLen { len });
            }
        }
        Ok(NicConfig {
            dispatch_timeout_nanos: nanos(timing.dispatch_timeout),
            timeout_nanos: nanos(timing.timeout),
            gather_nanos: wait_nanos_max(self.rtt, timing.dispatch_timeout),
            hold_nanos: self.hold_nanos(),
            nack_threshold,
            settings: self,
            place,
        })
    }

    /// The part of these settings that one of so many engines of a host has: of what all of them
    /// have together. Timing and regions are each engine's, as they are the host's. Of the rate of
    /// notices an engine takes its part when it is built, so that the sum is the host's whatever
    /// the rate is.
    ///
    /// # Errors
    /// The first setting that is too small for so many engines.
    pub fn divided(self, engines: u16) -> Result<Self, ConfigError> {
        if engines == 1 {
            return Ok(self);
        }
        let part = |setting, value: u32, least: u32| {
            let part = value / u32::from(engines);
            let error = ConfigError::TooSmallForEngines { setting, value, engines, least };
            if part < least { Err(error) } else { Ok(part) }
        };
        // Half of a window is for the mutations of others, and has room for one.
        let window = part("solicitation_window", self.solicitation_window, 2 * OP_SIZE_MAX)?;
        Ok(Self {
            command_slots: part("command_slots", self.command_slots, 1)?,
            inbound_queue: part("inbound_queue", self.inbound_queue, 1)?,
            pending_writes: part("pending_writes", self.pending_writes, 1)?,
            outcome_records: part("outcome_records", self.outcome_records, 1)?,
            solicitation_window: window,
            bandwidth: self.bandwidth / u64::from(engines),
            ..self
        })
    }

    /// How long a mutation whose data does not come keeps its share of the window while others wait
    /// (P13, not in the paper): twice what an op takes that is solicited behind a whole window. It
    /// follows from the settings and is not measured, as what peers can slow down must not set it.
    /// Longer: useless requests take more of the window from others. Shorter: data under way is no
    /// longer counted while it may still come.
    fn hold_nanos(&self) -> u64 {
        let window_nanos = u128::from(self.solicitation_window) * 1_000_000_000
            / u128::from(self.bandwidth.max(1));
        let most = nanos(self.timing.timeout) / HOLD_PART;
        let op_nanos = u128::from(nanos(self.rtt)) + window_nanos;
        u64::try_from(2 * op_nanos).unwrap_or(u64::MAX).min(most)
    }

    /// How many bytes of answers may wait in the inbound queue so that one more is still in time.
    //= 1rma#6.1-nack-threshold
    //= type=deviation
    fn nack_threshold(&self) -> Result<u64, ConfigError> {
        let Self { timing: Timing { dispatch_timeout, timeout }, rtt, bandwidth, .. } = *self;
        let time = timeout.checked_sub(rtt).and_then(|left| left.checked_sub(dispatch_timeout));
        let nanos = u128::from(nanos(time.unwrap_or_default()));
        let bytes = nanos * u128::from(bandwidth) / 1_000_000_000;
        if bytes < u128::from(OP_SIZE_MAX) {
            return Err(ConfigError::NackThreshold { timeout, rtt, dispatch_timeout, bandwidth });
        }
        Ok(u64::try_from(bytes).unwrap_or(u64::MAX))
    }
}

/// The part of the timeout that a mutation whose data does not come keeps its share of the window
/// for at most, where the network is slow: more, and useless requests would have a window for
/// nearly as long as honest ones that are lost.
const HOLD_PART: u64 = 8;

/// Settings that have been checked.
#[derive(Clone, Copy, Debug)]
pub struct NicConfig {
    pub(super) settings: NicConfigBuilder,
    pub(super) place: NicPlace,
    pub(super) dispatch_timeout_nanos: u64,
    pub(super) timeout_nanos: u64,
    /// How long a request may wait for others.
    pub(super) gather_nanos: u64,
    /// How long a mutation whose data does not come keeps its share of the window while others
    /// wait.
    pub(super) hold_nanos: u64,
    pub(super) nack_threshold: u64,
}

impl NicConfig {
    /// The values that the message counter has first.
    pub(super) fn counter_block(&self) -> CounterBlock {
        let first = self.place.counter_start.max(self.settings.counter_start);
        CounterBlock::new(first, self.place.counter_end)
    }

    /// The largest frame, in bytes, that the device can receive to `own`, one of the NIC's
    /// addresses.
    pub(super) const fn frame_len_max(&self, own: HostAddr) -> usize {
        let receive = &self.place.receive_len_max;
        if own.is_ipv4() { receive.ipv4 } else { receive.ipv6 }
    }

    /// This engine's part of a rate of its host: the parts of all engines are the whole, though not
    /// all the same.
    #[must_use]
    pub const fn part_of_rate(&self, per_second: u32) -> u32 {
        let engines = self.place.engines as u32;
        let has_one_more = (self.place.engine.0 as u32) < per_second % engines;
        // Alone it has all, whatever its number.
        if engines == 1 { per_second } else { per_second / engines + has_one_more as u32 }
    }

    /// More bytes of answers than this may not wait before a read, or it is NACKed (§6.1).
    #[must_use]
    pub const fn nack_threshold(&self) -> u64 {
        self.nack_threshold
    }

    /// For how long a mutation that was solicited, and whose data has not come, keeps its share of
    /// the solicitation window while others wait for it: the G of promise P13.
    #[must_use]
    pub const fn hold(&self) -> Duration {
        Duration::from_nanos(self.hold_nanos)
    }

    /// How many bytes of the solicitation window the mutations of others may have together (P13).
    #[must_use]
    pub const fn mutations_share(&self) -> u32 {
        SolicitationWindow::mutations_max(self.settings.solicitation_window)
    }

    /// The settings that this was built from.
    pub const fn settings(&self) -> &NicConfigBuilder {
        &self.settings
    }

    /// The place that this was built for.
    pub const fn place(&self) -> &NicPlace {
        &self.place
    }
}

/// A setting that cannot work.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigError {
    /// A NIC without an address can neither send nor receive.
    #[error("a NIC needs at least one address; set `addresses`")]
    NoAddress,
    /// Nothing can be sent to port 0.
    #[error("a NIC sends to UDP port 1 to 65535; set `port`, which is 0")]
    NoPort,
    /// There are too many engines, or this is none of them.
    #[error("engine {engine} of {engines}: a host has 1 to {ENGINES_MAX}, and counts them from 0")]
    Engines {
        /// The number of the engine.
        engine: u16,
        /// How many there are said to be.
        engines: u16,
    },
    /// Each engine of a host has a part of what all have together.
    #[error(
        "`{setting}` is {value}, too little for {engines} engines, of which each needs {least}: set it higher, or ask for fewer engines"
    )]
    TooSmallForEngines {
        /// The setting.
        setting: &'static str,
        /// Its value, for all engines together.
        value: u32,
        /// How many engines there are.
        engines: u16,
        /// How much each of them needs.
        least: u32,
    },
    /// A table has no entry, or more than its index can name.
    #[error("`{setting}` is {value}: it must be in 1..={max}")]
    TableSize {
        /// The setting.
        setting: &'static str,
        /// The refused value.
        value: u32,
        /// The largest that can work.
        max: u32,
    },
    /// An op of the largest size could never enter service.
    #[error(
        "`solicitation_window` is {window} bytes: every op needs {OP_SIZE_MAX} bytes to enter service"
    )]
    WindowBelowOneOp {
        /// The refused value.
        window: u32,
    },
    /// A timeout is shorter than the wire can say, or so long that it bounds nothing.
    #[error("`{setting}` is {value:?}: it must be in {TIMEOUT_MIN:?}..={TIMEOUT_MAX:?}")]
    Timeout {
        /// The setting.
        setting: &'static str,
        /// The refused value.
        value: Duration,
    },
    /// No read that finds another in the inbound queue would be answered in time (§6.1).
    #[error(
        "`timeout` {timeout:?} less `rtt` {rtt:?} and `dispatch_timeout` {dispatch_timeout:?} leaves no time to send \
         one op of {OP_SIZE_MAX} bytes at a `bandwidth` of {bandwidth} bytes a second: raise `timeout` or lower \
         `dispatch_timeout`"
    )]
    NackThreshold {
        /// How long an op in service may wait for its data.
        timeout: Duration,
        /// The network's round-trip time.
        rtt: Duration,
        /// How long an op may wait to enter service.
        dispatch_timeout: Duration,
        /// The rate at which this NIC answers, in bytes a second.
        bandwidth: u64,
    },
    /// The device could not receive the shortest response.
    #[error(
        "`receive_len_max` is {len} bytes: the shortest response has {} bytes; raise the MTU",
        wire::FRAME_LEN_MIN
    )]
    ReceiveLen {
        /// The refused value.
        len: usize,
    },
}

settings!(Timing, NicConfigBuilder, NicPlace);

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> NicPlace {
        let addr: HostAddr = "192.0.2.1".parse().unwrap();
        NicPlace::at(addr)
    }

    fn valid() -> NicConfigBuilder {
        NicConfigBuilder::default()
    }

    #[test]
    fn the_defaults_need_only_an_address() {
        assert!(valid().build(place()).is_ok());
        let nowhere = NicPlace::at(LocalAddresses::default());
        assert_eq!(valid().build(nowhere).unwrap_err(), ConfigError::NoAddress);
    }

    #[test]
    fn each_setting_that_cannot_work_is_named_with_its_value() {
        let refused = |change: fn(&mut NicConfigBuilder), text: &str| {
            let mut builder = valid();
            change(&mut builder);
            let error = builder.build(place()).unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        };
        refused(|b| b.command_slots = 0, "`command_slots` is 0");
        refused(|b| b.command_slots = 65_536, "`command_slots` is 65536");
        refused(|b| b.regions = 65_537, "`regions` is 65537");
        refused(|b| b.inbound_queue = 0, "`inbound_queue` is 0");
        refused(|b| b.inbound_queue = 65_536, "`inbound_queue` is 65536");
        refused(|b| b.pending_writes = 0, "`pending_writes` is 0");
        refused(|b| b.pending_writes = 65_536, "`pending_writes` is 65536");
        refused(|b| b.outcome_records = 0, "`outcome_records` is 0");
        refused(|b| b.outcome_records = 65_280, "must be in 1..=65279");
        refused(|b| b.solicitation_window = 4095, "`solicitation_window` is 4095");
        refused(|b| b.timing.timeout = Duration::ZERO, "`timeout` is 0ns");
        refused(|b| b.timing.dispatch_timeout = Duration::MAX, "`dispatch_timeout`");
        refused(|b| b.timing.dispatch_timeout = b.timing.timeout, "leaves no time");
        refused(|b| b.rtt = Duration::MAX, "leaves no time");
        refused(|b| b.bandwidth = 0, "`bandwidth` of 0 bytes a second");
        let small = place().with(|it| it.receive_len_max = ReceiveLenMax::of_mtu(100));
        let error = valid().build(small).unwrap_err().to_string();
        assert!(error.contains("`receive_len_max` is 72"), "{error}");
    }

    #[test]
    fn the_rates_of_a_hosts_engines_add_up_to_its_own() {
        for rate in [0, 1, 31, 1000, 100_000, u32::MAX] {
            for engines in [1, 2, 3, 7, 32] {
                let settings = NicConfigBuilder { notices_per_second: rate, ..valid() };
                let settings = settings.divided(engines).unwrap();
                let of = |engine| place().with(|it| it.engine = EngineId(engine));
                let parts = (0..engines).map(|engine| {
                    let place = of(engine).with(|it| it.engines = engines);
                    settings.build(place).unwrap().part_of_rate(settings.notices_per_second)
                });
                let parts: Vec<u64> = parts.map(u64::from).collect();
                let differ = parts.iter().max().unwrap() - parts.iter().min().unwrap();
                assert_eq!((parts.iter().sum::<u64>(), differ > 1), (rate.into(), false));
            }
        }
        let alone = valid().build(place().with(|it| it.engine = EngineId(7))).unwrap();
        assert_eq!(alone.part_of_rate(5), 5);
    }

    #[test]
    fn the_smallest_mtu_is_that_of_the_families_in_use() {
        let v6: HostAddr = "2001:db8::1".parse().unwrap();
        let builds = |addresses: LocalAddresses, mtu| {
            let receive_len_max = ReceiveLenMax::of_mtu(mtu);
            valid().build(NicPlace { addresses, receive_len_max, ..place() }).is_ok()
        };
        let v4 = place().addresses;
        let mut both = v4;
        both.insert(v6);
        for (addresses, mtu) in [(v4, 144), (v6.into(), 164), (both, 164)] {
            assert!(builds(addresses, mtu), "{mtu}");
            assert!(!builds(addresses, mtu - 1), "one byte less than {mtu}");
        }
    }

    //= 1rma#6.1-timeouts
    //= type=test
    #[test]
    fn the_papers_profile_follows_the_rtt_and_has_ten_microseconds_to_dispatch() {
        for micros in [1, 5, 40] {
            let paper = Timing::paper(Duration::from_micros(micros));
            assert_eq!(paper.dispatch_timeout, Duration::from_micros(10));
            assert_eq!(paper.timeout, Duration::from_micros(5 * micros));
        }
    }

    //= 1rma#6.1-timeouts
    //= type=test
    #[test]
    fn a_software_profile_follows_the_rtt_above_its_floor() {
        let floor = Duration::from_micros(500);
        let near = Timing::software(Duration::from_micros(10), floor);
        assert_eq!((near.dispatch_timeout, near.timeout), (floor * 2 / 5, floor));
        let far = Timing::software(Duration::from_millis(1), floor);
        assert_eq!(far.dispatch_timeout, Duration::from_millis(2));
        assert_eq!(far.timeout, Duration::from_millis(5));
        assert_eq!(far.bound(OpType::Read), Duration::from_millis(7));
        assert_eq!(far.bound(OpType::Write), Duration::from_millis(12));
    }

    #[test]
    fn a_share_is_held_for_twice_what_an_op_behind_a_whole_window_takes_and_an_eighth_at_most() {
        let hold = |change: fn(&mut NicConfigBuilder)| {
            let mut builder = valid();
            change(&mut builder);
            builder.build(place()).unwrap().hold()
        };
        // 10 us and 256 KiB at 1.25 GB/s.
        assert_eq!(hold(|_| ()), Duration::from_nanos(2 * (10_000 + 209_715)));
        assert_eq!(hold(|b| b.rtt = Duration::from_millis(30)), Duration::from_micros(12_500));
        assert_eq!(hold(|b| b.solicitation_window = u32::MAX), Duration::from_micros(12_500));
    }

    //= 1rma#6.1-nack-threshold
    //= type=test
    #[test]
    fn the_nack_threshold_is_what_can_be_sent_in_the_time_that_is_left() {
        // The numbers of section 7.5: 5 us, 2 RTT and 4 RTT, at 100 Gb/s.
        let rtt = Duration::from_micros(5);
        let timing = Timing { dispatch_timeout: rtt * 2, timeout: rtt * 4 };
        let paper = NicConfigBuilder { timing, rtt, bandwidth: 12_500_000_000, ..valid() };
        assert_eq!(paper.build(place()).unwrap().nack_threshold(), 62_500, "5 us of 12.5 GB/s");
        let timing = Timing { timeout: TIMEOUT_MAX, ..timing };
        let endless = NicConfigBuilder { timing, bandwidth: u64::MAX, ..valid() };
        assert_eq!(endless.build(place()).unwrap().nack_threshold(), u64::MAX, "no overflow");
    }
}
