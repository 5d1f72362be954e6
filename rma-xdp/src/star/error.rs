//! Errors of what StaR is asked of a host.

use rma_star::{
    limits::{QPS_MAX, SLOTS_MAX},
    mr_table::MrError,
    names::Qpn,
    pd_table::PdError,
};
use thiserror::Error;

/// The reason why a host did not do what StaR was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum StarError {
    /// The host serves 1RMA alone.
    #[error("this host serves no StaR; open it with `HostConfig::star` set")]
    NotServed,
    /// A portal that is empty, or larger than any can be.
    #[error(
        "a portal of {work_requests} work requests and {queue_pairs} queue pairs: it has 1 to {SLOTS_MAX} and 1 to {QPS_MAX}"
    )]
    PortalSize {
        /// How many work requests were asked for.
        work_requests: u32,
        /// How many queue pairs.
        queue_pairs: u32,
    },
    /// The engine has as many portals as QPNs can name of its own.
    #[error(
        "all portals that an engine can have are in use, of {} in equal parts for all engines of \
         this host; drop one",
        Qpn::PORTALS
    )]
    TooManyPortals,
    /// The tag is of no portal of this host.
    #[error(
        "this host has no such portal: it was dropped, or is another host's; allocate one of \
         this host"
    )]
    NoSuchPortal,
    /// There is no such protection domain, or no more.
    #[error(transparent)]
    Pd(#[from] PdError),
    /// There is no such memory region, or it cannot be registered, bound or taken back.
    #[error(transparent)]
    Mr(#[from] MrError),
}
