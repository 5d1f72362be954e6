//! Settings of one host's StaR, and how they relate.

use core::{ops::Range, time::Duration};

use rma_core::{
    addr::LocalAddresses,
    backend::{BATCH, ReceiveLenMax},
    cc::{Algorithm, CcConfig, CcConfigBuilder, CcConfigError},
    crypto::EngineId,
    fair_queue::BucketSecret,
    limits::{ENGINES_MAX, GRANULE},
    port::Port,
};
use thiserror::Error;

use crate::{limits::VALID_MICROS_MAX, mr_table::MRS_MAX, names::Qpn, pd_table::PDS_MAX, wire};

/// The UDP port of what goes to stateless processing, unless another is configured.
pub const STATELESS_PORT: Port = Port(10_474);

/// The UDP port of what goes to stateful processing, unless another is configured.
pub const STATEFUL_PORT: Port = Port(10_475);

/// The most rows of a table of the stateful side: numbers of rows are 16 bits, one of which means
/// none.
pub const ROWS_MAX: u32 = 65_535;

/// The way in which frames carry work requests and completions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Framing {
    /// The paper's packet sequence: a WQEP for each work request, a CQEP for each completion, an
    /// RDA for each RD.
    Faithful,
    /// Fewer frames for the same (ours): several work requests in a WQEP, several completions in a
    /// CQEP, the last data of a SEND with its completion, one EA for what comes together, and none
    /// where a CQEP says the same.
    #[default]
    Fused,
}

/// The settings of StaR. [`StarConfigBuilder::build`] checks them.
#[derive(Clone, Copy, Debug)]
#[must_use]
#[non_exhaustive]
pub struct StarConfigBuilder {
    /// How many protection domains there may be. Default: 256.
    pub pds: u32,
    /// How many memory regions and windows there may be. Default: 1024.
    pub mrs: u32,
    /// How many answers of the stateless side may wait for the device, of all connections together.
    /// A host gets half of those that are free, and an eighth of all in any case, which must be a
    /// batch of frames: 128 or more. Fewer: frames that come in a burst are lost and come again.
    /// Default: 512.
    pub answers: u32,
    /// Entries of the filter that keeps one-sided WRITEs of stateful sides from landing twice. A
    /// quarter of it should be as many frames of such WRITEs as can come in `valid`. Default: 2^16,
    /// 8 bytes each, for 1 M frames a second.
    pub filter_entries: u32,
    /// How many connections there may be of which this host is the stateful side. Default: 1024.
    pub connections: u32,
    /// How many work requests of all those connections may be outstanding, of both sides. A quarter
    /// of them is kept for applications, in proportion to the connections that their portals may
    /// have, and two for each connection for its stateless side: one that sends, writes or reads,
    /// and one RECV. Of the rest, nobody gets more than two thirds. Fewer than four for each
    /// connection: not every stateless side always gets one in. Default: 8192.
    pub work_requests: u32,
    /// How many frames of all those connections may be under way. One is kept for each connection,
    /// as long as that is no more than half of them; of the rest a peer gets no more than two
    /// thirds, so one that does not answer holds up nobody else. Default: 4096.
    pub frames_under_way: u32,
    /// How much may be under way to each peer, as congestion control finds. All connections to a
    /// peer share its windows, of which each way of the data has one; how many there are follows
    /// from `connections`. Default: as of initiators of 1RMA in software, on a network with a round
    /// trip of 10 µs, with Swift's rules and one target for both ways. Delays alone leave a window
    /// one op of 4 KiB, of which a small message takes 64 bytes.
    pub cc: CcConfigBuilder,
    /// For how long a frame to a stateless side is valid: W. Longer: it may be late by more, and
    /// the filter needs more entries. Shorter: a stateless side that is stopped for a while takes
    /// nothing of what came meanwhile. Default: 16 ms.
    pub valid: Duration,
    /// After what time a frame is sent again that was not answered; twice that for the next time,
    /// and so on, each up to 7/32 longer. At least 17/16 of `valid`: then its older copy is dead.
    /// Default: 20 ms.
    pub retransmit_timeout: Duration,
    /// How often a frame is sent again. Default: 7.
    pub retries: u8,
    /// How long a SEND may wait for a RECV. Default: 10 s.
    pub rnr_timeout: Duration,
    /// How long nothing may be heard of a peer, while there are work requests, before it is asked
    /// whether it is there. Default: 10 s.
    pub probe_interval: Duration,
    /// The way in which frames carry work requests. Default: [`Framing::Fused`].
    pub framing: Framing,
}

impl Default for StarConfigBuilder {
    fn default() -> Self {
        Self {
            pds: 256,
            mrs: 1024,
            answers: 512,
            filter_entries: 1 << 16,
            connections: 1024,
            work_requests: 8192,
            frames_under_way: 4096,
            cc: congestion_control(),
            valid: Duration::from_millis(16),
            retransmit_timeout: Duration::from_millis(20),
            retries: 7,
            rnr_timeout: Duration::from_secs(10),
            probe_interval: Duration::from_secs(10),
            framing: Framing::default(),
        }
    }
}

/// Congestion control for both ways of the data here: an RD and its RDA take no more round trips
/// than a GD and its GDA. Stateful sides do not ask before they send (1RMA's solicitation), so
/// delays must make windows small where many meet.
fn congestion_control() -> CcConfigBuilder {
    CcConfigBuilder::software(RTT).with(|cc| {
        cc.algorithm = Algorithm::Swift;
        cc.outbound_target_delay = cc.inbound_target_delay;
        cc.op_charge_min = GRANULE;
        (cc.cwnd_initial, cc.cwnd_delay_min, cc.cwnd_min) = (4.0, 1.0, 1.0);
    })
}

/// The round trip of a frame and its answer that is assumed unless something else is set.
const RTT: Duration = Duration::from_micros(10);

/// The facts that the opener of a host knows. They are no settings.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct StarPlace {
    /// The host's addresses.
    pub addresses: LocalAddresses,
    /// The port of stateless processing, on every host.
    pub stateless_port: Port,
    /// The port of stateful processing, on every host.
    pub stateful_port: Port,
    /// The number of this engine among those of its host. Default: 0. Two engines of one host with
    /// one number would repeat IVs.
    pub engine: EngineId,
    /// How many engines the host has, each with its part of the portals: 1 to [`ENGINES_MAX`].
    /// Where there are several, `engine` counts them from 0. Default: 1.
    pub engines: u16,
    /// The largest frame that the device can receive.
    pub receive_len_max: ReceiveLenMax,
    /// The secret by which hosts are spread over lists, and frames over lines of the filter.
    /// Default: zeroes, right for a simulation only.
    pub secret: BucketSecret,
}

impl StarPlace {
    /// At these addresses.
    pub fn at(addresses: impl Into<LocalAddresses>) -> Self {
        Self {
            addresses: addresses.into(),
            stateless_port: STATELESS_PORT,
            stateful_port: STATEFUL_PORT,
            engine: EngineId::default(),
            engines: 1,
            receive_len_max: ReceiveLenMax::default(),
            secret: BucketSecret::from_bytes([0; 16]),
        }
    }
}

rma_core::settings!(StarConfigBuilder, StarPlace);

/// A setting that cannot work.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum StarConfigError {
    /// A host without an address.
    #[error("the host has no address for StaR; set at least one in its configuration")]
    NoAddress,
    /// Ports that are 0, or the same.
    #[error(
        "stateless port {stateless} and stateful port {stateful}: both must be set, and differ"
    )]
    Ports {
        /// The one.
        stateless: Port,
        /// The other.
        stateful: Port,
    },
    /// There are too many engines, or this is none of them.
    #[error("engine {engine} of {engines}: a host has 1 to {ENGINES_MAX}, and counts them from 0")]
    Engines {
        /// The number of the engine.
        engine: u16,
        /// How many there are said to be.
        engines: u16,
    },
    /// A table of the host that is too small to be divided.
    #[error(
        "{setting} is {value}: {engines} engines need {engines} or more; raise it, or open fewer"
    )]
    TooFewForEngines {
        /// The name of the setting.
        setting: &'static str,
        /// The value.
        value: u32,
        /// How many engines there are.
        engines: u16,
    },
    /// A table that is empty or too large.
    #[error("{setting} is {value}: it must be from {min} to {max}")]
    TableSize {
        /// The name of the setting.
        setting: &'static str,
        /// The value.
        value: u32,
        /// The least that it may be.
        min: u32,
        /// The most that it may be.
        max: u32,
    },
    /// A time that is out of range.
    #[error("{setting} is {value:?}: it must be from {min:?} to {max:?}")]
    Time {
        /// The name of the setting.
        setting: &'static str,
        /// The value.
        value: Duration,
        /// The least that it may be.
        min: Duration,
        /// The most that it may be.
        max: Duration,
    },
    /// Congestion control that cannot work.
    #[error("congestion control: {0}")]
    Cc(#[from] CcConfigError),
    /// A device whose frames are too small.
    #[error("the device receives frames of {len} octets: StaR needs {min}")]
    ReceiveLen {
        /// The length that it receives.
        len: usize,
        /// The least length.
        min: usize,
    },
}

/// Settings that have been checked.
#[derive(Clone, Copy, Debug)]
pub struct StarConfig {
    pub(crate) settings: StarConfigBuilder,
    pub(crate) place: StarPlace,
    pub(crate) cc: CcConfig,
}

/// The fewest answers that may wait: beside hosts that ask for much a host gets an eighth of them,
/// and a batch of its frames must have room in that, or some are lost of each batch that comes.
const ANSWERS_MIN: u32 = 8 * BATCH as u32;

/// Into how many parts the time is cut after which a frame is sent again, and how many of them it
/// may be longer, so that frames that were lost together are not all sent again together. More
/// parts: these come again closer together. Fewer: a loss is repaired later.
pub(crate) const SPREAD_PARTS: u32 = 32;
pub(crate) const SPREAD_MAX: u32 = 7;

/// How much longer than W the first retransmit timeout is at least: W/16. Clocks of two hosts drift
/// apart by W/1024 at most.
const OLDER_COPY_IS_DEAD: u32 = 16;

impl StarConfigBuilder {
    /// T_dead of the stateful side (S1): within this time after a peer has died, or after they were
    /// posted, all work requests of the connections to it have completed, RECVs among them. A quiet
    /// connection asks whether the peer is there, what is not answered is sent again as often as it
    /// may be, and then all that was sent must have expired.
    #[must_use]
    pub fn ends_within(&self) -> Duration {
        let times = (0..=u32::from(self.retries)).map(|tries| 1_u32.checked_shl(tries));
        let times = times.fold(0_u32, |sum, it| sum.saturating_add(it.unwrap_or(u32::MAX)));
        let tries = self.retransmit_timeout.saturating_mul(times);
        let spread = (tries / SPREAD_PARTS).saturating_mul(SPREAD_MAX);
        let expires = self.valid + self.valid / OLDER_COPY_IS_DEAD;
        tries.saturating_add(spread).saturating_add(self.probe_interval).saturating_add(expires)
    }

    /// The settings of each of so many engines of a host that has these: protection domains,
    /// memory regions, connections, work requests, frames under way and answers in equal parts. Of
    /// answers each has as many as one engine needs, though that may be more together. The filter
    /// is not divided: one engine may get all frames that it is for. Windows of congestion control
    /// are not either: they follow what is found of the path.
    ///
    /// # Errors
    /// The first setting of which there is not one for each engine, and a number of engines that
    /// no host has.
    pub fn divided(mut self, engines: u16) -> Result<Self, StarConfigError> {
        check_engines(EngineId(0), engines)?;
        for (setting, value) in [
            ("pds", &mut self.pds),
            ("mrs", &mut self.mrs),
            ("connections", &mut self.connections),
            ("work_requests", &mut self.work_requests),
            ("frames_under_way", &mut self.frames_under_way),
        ] {
            if *value < engines.into() {
                let value = *value;
                return Err(StarConfigError::TooFewForEngines { setting, value, engines });
            }
            *value /= u32::from(engines);
        }
        if engines > 1 {
            self.answers = (self.answers / u32::from(engines)).max(ANSWERS_MIN);
        }
        Ok(self)
    }

    /// Checks every setting for a host at `place`, and how they relate.
    ///
    /// # Errors
    /// The first setting that cannot work, with its value and the rule.
    pub fn build(self, place: StarPlace) -> Result<StarConfig, StarConfigError> {
        if place.addresses.is_empty() {
            return Err(StarConfigError::NoAddress);
        }
        let (stateless, stateful) = (place.stateless_port, place.stateful_port);
        if stateless == stateful || stateless == Port(0) || stateful == Port(0) {
            return Err(StarConfigError::Ports { stateless, stateful });
        }
        check_engines(place.engine, place.engines)?;
        for (setting, value, min, max) in [
            ("pds", self.pds, 1, PDS_MAX),
            ("mrs", self.mrs, 1, MRS_MAX),
            ("answers", self.answers, ANSWERS_MIN, ROWS_MAX),
            ("filter_entries", self.filter_entries, 16, 1 << 28),
            ("connections", self.connections, 1, ROWS_MAX),
            ("work_requests", self.work_requests, 1, ROWS_MAX),
            ("frames_under_way", self.frames_under_way, 1, ROWS_MAX),
        ] {
            if !(min..=max).contains(&value) {
                return Err(StarConfigError::TableSize { setting, value, min, max });
            }
        }
        let valid_max = Duration::from_micros(VALID_MICROS_MAX);
        let dead = self.valid + self.valid / OLDER_COPY_IS_DEAD;
        let day = Duration::from_secs(86_400);
        let micro = Duration::from_micros(1);
        for (setting, value, min, max) in [
            ("valid", self.valid, micro, valid_max),
            ("retransmit_timeout", self.retransmit_timeout, dead.max(micro), day),
            ("rnr_timeout", self.rnr_timeout, micro, day),
            ("probe_interval", self.probe_interval, micro, day),
        ] {
            if !(min..=max).contains(&value) {
                return Err(StarConfigError::Time { setting, value, min, max });
            }
        }
        for address in place.addresses.iter() {
            let receive = place.receive_len_max;
            let len = if address.is_ipv4() { receive.ipv4 } else { receive.ipv6 };
            if len < wire::FRAME_LEN_MIN {
                return Err(StarConfigError::ReceiveLen { len, min: wire::FRAME_LEN_MIN });
            }
        }
        // Each connection holds two, one for each way.
        let remotes = (2 * self.connections).min(ROWS_MAX);
        let cc = self.cc.with(|cc| cc.remotes = remotes).build()?;
        Ok(StarConfig { settings: self, place, cc })
    }
}

/// Whether a host may have so many engines, of which one has this number.
fn check_engines(engine: EngineId, engines: u16) -> Result<(), StarConfigError> {
    let is_one_of_them = engines == 1 || engine.0 < engines;
    if (1..=ENGINES_MAX).contains(&engines) && is_one_of_them {
        Ok(())
    } else {
        Err(StarConfigError::Engines { engine: engine.0, engines })
    }
}

impl StarConfig {
    /// How many portals each engine of the host has.
    const fn portals_each(&self) -> u16 {
        (Qpn::PORTALS / self.place.engines as u32) as u16
    }

    /// The numbers of this engine's portals.
    pub(crate) const fn portals(&self) -> Range<u16> {
        let index = if self.place.engines == 1 { 0 } else { self.place.engine.0 };
        let first = index * self.portals_each();
        first..first + self.portals_each()
    }

    /// The engine of the host that has the portal of this number. `None`: none has.
    pub(crate) fn engine_of_portal(&self, portal: u32) -> Option<EngineId> {
        let index = portal / u32::from(self.portals_each());
        u16::try_from(index).ok().filter(|&it| it < self.place.engines).map(EngineId)
    }

    /// W in microseconds.
    pub(crate) const fn valid_micros(&self) -> u64 {
        self.settings.valid.as_micros() as u64
    }

    /// Returns the settings.
    pub const fn settings(&self) -> &StarConfigBuilder {
        &self.settings
    }

    /// Returns the host's place.
    #[must_use]
    pub const fn place(&self) -> &StarPlace {
        &self.place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> StarPlace {
        StarPlace::at(rma_core::addr::HostAddr::from([192, 0, 2, 1]))
    }

    #[test]
    fn the_defaults_work_and_errors_say_the_setting() {
        assert!(StarConfigBuilder::default().build(place()).is_ok());
        let wrong = |change: fn(&mut StarConfigBuilder)| {
            let mut builder = StarConfigBuilder::default();
            change(&mut builder);
            builder.build(place()).unwrap_err().to_string()
        };
        for (text, setting) in [
            (wrong(|it| it.pds = 0), "pds is 0"),
            (wrong(|it| it.answers = 1 << 20), "answers is 1048576"),
            (wrong(|it| it.answers = 127), "answers is 127: it must be from 128 "),
            (wrong(|it| it.cc.cwnd_max = 0.0), "congestion control: `cwnd_max` is 0"),
            (wrong(|it| it.retransmit_timeout = it.valid), "retransmit_timeout is 16ms"),
            (wrong(|it| it.valid = Duration::from_secs(2)), "valid is 2s"),
        ] {
            assert!(text.starts_with(setting), "{text}");
        }
    }

    #[test]
    fn parts_of_the_defaults_work_for_as_many_engines_as_a_host_may_have() {
        let all = StarConfigBuilder::default();
        for engines in 1..=ENGINES_MAX {
            let part = all.divided(engines).unwrap();
            let mut numbers = 0;
            for engine in (0..engines).map(EngineId) {
                let place = place().with(|it| (it.engine, it.engines) = (engine, engines));
                let config = part.build(place).unwrap();
                assert_eq!(config.portals().start, numbers, "side by side");
                numbers = config.portals().end;
                for portal in [config.portals().start, numbers - 1] {
                    assert_eq!(config.engine_of_portal(portal.into()), Some(engine));
                }
                for portal in [u32::from(engines) * u32::from(config.portals_each()), u32::MAX] {
                    assert_eq!(config.engine_of_portal(portal), None);
                }
            }
            assert!(u32::from(numbers) + u32::from(engines) > Qpn::PORTALS);
            let of_all = |of: fn(&StarConfigBuilder) -> u32| of(&part) * u32::from(engines);
            assert!(of_all(|it| it.pds) <= all.pds && of_all(|it| it.mrs) <= all.mrs);
            assert!(of_all(|it| it.connections) <= all.connections);
        }
        let one = all.divided(1).unwrap();
        assert_eq!(format!("{one:?}"), format!("{all:?}"), "one engine has all");
    }

    #[test]
    fn engines_that_cannot_be_and_tables_too_small_for_them_are_told() {
        let said = |engine, engines| {
            let place = place().with(|it| (it.engine, it.engines) = (EngineId(engine), engines));
            StarConfigBuilder::default().build(place).unwrap_err().to_string()
        };
        for (engine, engines) in [(0, 0), (0, 33), (4, 4), (u16::MAX, 2)] {
            let text = format!("engine {engine} of {engines}: a host has 1 to 32, ");
            assert!(said(engine, engines).starts_with(&text));
        }
        // A host's only engine may have any number.
        let place = place().with(|it| it.engine = EngineId(7));
        assert_eq!(StarConfigBuilder::default().build(place).unwrap().portals(), 0..4096);

        let small = StarConfigBuilder::default().with(|it| it.connections = 3);
        assert!(small.divided(3).is_ok());
        let text = small.divided(4).unwrap_err().to_string();
        assert_eq!(text, "connections is 3: 4 engines need 4 or more; raise it, or open fewer");
        assert!(matches!(small.divided(33), Err(StarConfigError::Engines { .. })));
    }

    //= star#IV-A-ports
    //= type=test
    #[test]
    fn a_place_needs_addresses_two_ports_and_frames() {
        let build = |change: fn(&mut StarPlace)| {
            let mut place = place();
            change(&mut place);
            StarConfigBuilder::default().build(place).unwrap_err()
        };
        assert_eq!(
            build(|it| it.addresses = LocalAddresses::default()),
            StarConfigError::NoAddress
        );
        let ports = build(|it| it.stateful_port = it.stateless_port);
        assert!(matches!(ports, StarConfigError::Ports { .. }));
        let len = build(|it| it.receive_len_max = ReceiveLenMax::of_mtu(100));
        assert_eq!(len, StarConfigError::ReceiveLen { len: 72, min: wire::FRAME_LEN_MIN });
    }
}
