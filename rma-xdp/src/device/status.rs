//! The status of a host's network interface: [`InterfaceStatus`].

use core::fmt;
use std::sync::Arc;

/// The state of the network interface of a host over AF_XDP.
///
/// Ops are issued as always, whatever its state: those that cannot reach anybody end within their
/// bounds (P1), with TIMEOUT or DISPATCH_TIMEOUT, and [`crate::Host::resolve`] says why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InterfaceState {
    /// It is up and has carrier.
    Up,
    /// It is down, or has no carrier: nobody can be reached. The host stays attached, and goes on
    /// when it is up again.
    Down,
    /// It is gone: removed, or moved to another network namespace. When there is an interface of
    /// its name again, the host attaches to it.
    Gone,
    /// An interface of its name is there, and the host is not attached to it yet, or cannot be:
    /// see [`InterfaceStatus::trouble`]. It is tried again whenever something changes, and every
    /// second.
    Detached,
}

impl InterfaceState {
    /// All states.
    pub const ALL: [Self; 4] = [Self::Up, Self::Down, Self::Gone, Self::Detached];

    /// Its name in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
            Self::Gone => "gone",
            Self::Detached => "detached",
        }
    }
}

impl fmt::Display for InterfaceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The status of the network interface of a host over AF_XDP at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InterfaceStatus {
    /// The name that it has, or had last. When it is gone it is looked for by this name, and by the
    /// one that the host was opened with.
    pub interface: Box<str>,
    /// The interface's state.
    pub state: InterfaceState,
    /// How often the host has attached to it: 1, and once more each time that it came back, that it
    /// got more receive queues, or that the steering program's mode was changed.
    pub attachments: u64,
    /// The reason why the host is not attached to an interface that is there; `None` if it is, or
    /// has not tried yet.
    pub trouble: Option<Box<str>>,
    /// How many receive queues it has, or had last.
    pub queues: u32,
    /// How many of these are polled when the host is attached: those of an engine that stands still
    /// while it is attached anew, or has ended, are not. Frames on the others go to the kernel,
    /// which drops them.
    pub queues_polled: u32,
    /// The device that is attached, or was last, in words.
    pub device: Arc<str>,
}

impl fmt::Display for InterfaceStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { interface, state, trouble, queues, queues_polled, .. } = self;
        write!(f, "interface {interface} is {state}")?;
        if queues_polled < queues {
            write!(f, " with {queues_polled} of its {queues} receive queues polled")?;
        }
        trouble.as_ref().map_or(Ok(()), |trouble| write!(f, ": {trouble}"))
    }
}
