//! Errors that end a measurement early, and the next step for a person.
//!
//! Below all that measures: one error for a pair of hosts and everything that is done with it.

use rma_keys::{io::client::FetchError, ring::GiveUp};
use rma_lab::LabError;
use rma_xdp::{HostError, OpStatus, OpType, SubmitError, WaitError};

/// An error that kept a pair from being opened, or ended a run early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PairError {
    /// A host could not be opened or did not do what it was asked.
    #[error(transparent)]
    Host(#[from] HostError),
    /// A namespace could not be entered.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// An op was refused. A bug of the bench.
    #[error("an op was refused: {0}")]
    Submit(#[from] SubmitError),
    /// A completion cannot come. A bug of the bench.
    #[error(transparent)]
    Wait(#[from] WaitError),
    /// A byte was not what it should be.
    #[error(
        "byte {at} of the remote region is not what it should be: somebody else writes there, or a `write-lat` had \
         `--verify 0` or was killed before it restored what it had found; start `rma-bench serve` again, which fills the \
         region anew. If nobody wrote, this must never happen: please report it"
    )]
    WrongByte {
        /// The offset in the remote region.
        at: u64,
    },
    /// Messages were not what they should be.
    #[error(
        "{wrong} of {messages} messages were not what they should be: unless somebody else sends here, this must never \
         happen, please report it"
    )]
    WrongMessages {
        /// How many were not.
        wrong: u64,
        /// How many came.
        messages: u64,
    },
    /// Nobody knows any more whether an op was applied.
    #[error(
        "a {op_type} ended with TIMEOUT, and its target has forgotten what became of it: its word may have been changed; \
         start `rma-bench serve` again, which fills the region anew"
    )]
    Forgotten {
        /// The type of the op.
        op_type: OpType,
    },
    /// Ops were OK whose events the receiver has not seen.
    #[error(
        "{ops} ops with an event were OK, and {events} events came: this must never happen, please report it"
    )]
    MissingEvents {
        /// How many ops were OK.
        ops: u64,
        /// How many events came.
        events: u64,
    },
    /// Too many ops in a row did not complete with OK.
    #[error("{failures} ops in a row ended with {status}; {hint}")]
    Failing {
        /// How many ops have failed in a row.
        failures: u32,
        /// The status of the last one.
        status: OpStatus,
        /// The advice.
        hint: &'static str,
    },
    /// An op failed where none may.
    #[error(
        "a {op_type} ended with {status}, and every op of this measurement must succeed; {hint}"
    )]
    Failed {
        /// The type of the op that failed.
        op_type: OpType,
        /// The status that it ended with.
        status: OpStatus,
        /// The advice.
        hint: &'static str,
    },
    /// There is no grant for ops of this type.
    #[error("{op_type} is not granted: run `rma-bench serve` with --op and all that is needed")]
    NotGranted {
        /// The type of op that no grant is for.
        op_type: OpType,
    },
    /// A new grant could not be fetched out of band.
    #[error("fetching a grant, over TCP or from a file: {0}")]
    Fetch(#[from] std::io::Error),
    /// Keys could not be fetched from the key service.
    #[error(transparent)]
    FetchKeys(#[from] FetchError),
    /// There is no key to go on with.
    #[error(transparent)]
    GaveUp(#[from] GiveUp),
    /// IPv6 was asked for where there is one IPv6 address only.
    #[error("over loopback the two hosts speak IPv4 only; leave out --ipv6, or run as root")]
    NoIpv6OnLoopback,
    /// A raw floor was asked for where there are no raw sockets. A bug of the bench.
    #[error("the raw floor needs AF_XDP sockets, which need root; run it as root")]
    NoRawSockets,
    /// Sockets to compare with could not be had.
    #[error("kernel sockets to compare with: {0}")]
    Sockets(#[source] std::io::Error),
    /// A round of a measurement is worth nothing. Whoever measures in several rounds
    /// ([`rates::in_turns`](crate::rates::in_turns)) does without it.
    #[error("{0}; look whether the machine is too busy")]
    SpoiledRound(String),
    /// Too few rounds of a measurement are worth anything.
    #[error(
        "only {counted} of {rounds} rounds count, which says nothing; the last that does not: {why}; look whether the \
         machine is too busy"
    )]
    SpoiledRounds {
        /// How many count.
        counted: usize,
        /// How many there were.
        rounds: u64,
        /// The fault of the last spoiled round.
        why: String,
    },
    /// A measurement that stands on this library failed in a way of its own.
    #[error(transparent)]
    Other(Box<dyn core::error::Error + Send + Sync>),
    /// Somebody pressed Ctrl-C.
    #[error("interrupted")]
    Interrupted,
}

/// Causes to look for where nothing comes back from another machine.
pub(crate) const NOTHING_COMES_BACK: &str = "a firewall on the way or on either side that drops this port in either direction \
    (answers come from other source ports than requests go to); an address that is translated on the way (NAT), which 1RMA \
    does not pass; and, if ops of 64 B work and larger ones do not (`--size 64`), a link on the way that takes shorter \
    packets than both interfaces do";

/// The advice for ops that end with `status`.
#[must_use]
pub const fn hint(status: OpStatus) -> &'static str {
    match status {
        OpStatus::Timeout => {
            "nothing came back from the other host for some seconds: look whether a firewall here drops the hosts' UDP \
             port, and whether the machine is too busy"
        }
        OpStatus::RemoteAuthenticationFailure => {
            "the grant is for an older key of the region: run this again, or have `rma-bench serve` write a new grant file"
        }
        OpStatus::RemoteNotReady => {
            "the other host has no receive posted: look whether it is too busy"
        }
        OpStatus::RemoteOutOfBounds => {
            "the region is shorter than the grant says: run this again, or have `rma-bench serve` write a new grant file"
        }
        OpStatus::RemotePermissionDenied => {
            "the region there does not permit such ops: start `rma-bench serve` with all of them in --op"
        }
        OpStatus::Nack => {
            "the other host has more requests than it can queue: give a smaller --depth, or have fewer clients at once"
        }
        OpStatus::DispatchTimeout => {
            "ops waited too long here for others to be answered: give a smaller --depth, or look whether the other host \
             stands still"
        }
        OpStatus::InvalidCommand => {
            "this host's own NIC refused the command, which is a bug: please report it, with the command line"
        }
        OpStatus::Ok => "nothing is wrong with it",
    }
}
