//! The traffic class that a host's packets ask the network for: a DSCP in the IP header (RFC 2474).
//!
//! The paper gives 1RMA a traffic class of its own on its fabric (§6). Which values a network knows
//! is the network's affair, so the default is none.

use core::{fmt, str::FromStr};

use rma_core::op::ClassOfService;

/// A DSCP, 0 to 63. 0, the default, is best effort.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Dscp(u8);

impl Dscp {
    /// The largest.
    pub const MAX: u8 = 63;

    /// This value, if there is such a DSCP.
    #[must_use]
    pub const fn new(value: u8) -> Option<Self> {
        if value <= Self::MAX { Some(Self(value)) } else { None }
    }

    /// Its number.
    #[must_use]
    pub const fn get(self) -> u8 {
        self.0
    }

    /// The octet of the IP header that it is in, above the two bits of ECN: traffic class, or type
    /// of service.
    pub(crate) const fn octet(self) -> u8 {
        self.0 << 2
    }
}

//= 1rma#6-own-traffic-class
//= type=deviation
/// The DSCP of packets, by the class of service of their ops. All services of a host have the same.
///
/// Where the two differ, frames of different classes share no packet.
///
/// ```
/// use rma_xdp::device::{Dscp, TrafficClasses};
///
/// let classes: TrafficClasses = "46/10".parse()?;
/// assert_eq!((Some(classes.latency), Some(classes.throughput)), (Dscp::new(46), Dscp::new(10)));
/// assert_eq!("46".parse::<TrafficClasses>()?.throughput.get(), 46);
/// assert!("64".parse::<TrafficClasses>().is_err());
/// # Ok::<(), rma_xdp::device::NoDscp>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TrafficClasses {
    /// Of the latency class.
    pub latency: Dscp,
    /// Of the throughput class.
    pub throughput: Dscp,
}

impl TrafficClasses {
    /// The DSCP of a packet with frames of `class`.
    #[inline]
    pub(crate) const fn of(self, class: ClassOfService) -> Dscp {
        match class {
            ClassOfService::Latency => self.latency,
            ClassOfService::Throughput => self.throughput,
        }
    }

    /// Whether the classes must not share a packet.
    pub(crate) fn are_apart(self) -> bool {
        self.latency != self.throughput
    }
}

/// The text is no DSCP, nor two.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "{text:?} is no DSCP: give 0 to {}, or two for the latency and the throughput class, as 46/10",
    Dscp::MAX
)]
pub struct NoDscp {
    /// The text that was given.
    pub text: Box<str>,
}

impl FromStr for TrafficClasses {
    type Err = NoDscp;

    fn from_str(text: &str) -> Result<Self, NoDscp> {
        let (latency, throughput) = text.split_once('/').unwrap_or((text, text));
        let dscp = |text: &str| text.parse().ok().and_then(Dscp::new);
        let both = dscp(latency).zip(dscp(throughput));
        let (latency, throughput) = both.ok_or_else(|| NoDscp { text: text.into() })?;
        Ok(Self { latency, throughput })
    }
}

/// One number, or two: as it is parsed.
impl fmt::Display for TrafficClasses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { latency, throughput } = self;
        latency.0.fmt(f)?;
        if self.are_apart() { write!(f, "/{}", throughput.0) } else { Ok(()) }
    }
}
