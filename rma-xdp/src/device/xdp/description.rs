//! The description of the opened device, with each part of it that works less well than it could.
//!
//! Facts as data, so that a person and a report get the same ones. It decides nothing.

use std::fmt;

use super::{choice::ModeReason, config::AttachMode, error::Refusal};

/// Something that was wanted and is not in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Feature {
    /// XDP in the driver.
    NativeMode,
    /// XDP in the network stack.
    GenericMode,
    /// The driver works on the UMEM itself.
    ZeroCopy,
    /// The kernel copies between the driver's memory and the UMEM.
    Copy,
    /// All receive queues of the interface.
    AllQueues,
    /// Some receive queues, and not all that the interface has.
    SomeQueues,
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NativeMode => "native XDP",
            Self::GenericMode => "generic XDP",
            Self::ZeroCopy => "zero-copy",
            Self::Copy => "copy mode",
            Self::AllQueues => "all receive queues",
            Self::SomeQueues => "some receive queues",
        })
    }
}

/// One thing that works less well than it could, and why. Nothing is slower in silence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fallback {
    /// The feature that would have been better.
    pub wanted: Feature,
    /// The feature that is in use.
    pub got: Feature,
    /// The reason why the wanted one could not be had.
    pub reason: Refusal,
}

impl Fallback {
    /// The other mode than `wanted`, which was refused for this reason.
    pub(super) const fn of_mode(wanted: AttachMode, reason: Refusal) -> Self {
        let (wanted, got) = match wanted {
            AttachMode::Native => (Feature::NativeMode, Feature::GenericMode),
            AttachMode::Generic => (Feature::GenericMode, Feature::NativeMode),
        };
        Self { wanted, got, reason }
    }
}

impl fmt::Display for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} instead of {}: {}", self.got, self.wanted, self.reason)
    }
}

/// The description of the opened device, for people and for reports.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Description {
    /// The interface that the sockets are bound to.
    pub interface: Box<str>,
    /// The mode in which the steering program is attached.
    pub mode: AttachMode,
    /// The reason for that mode.
    pub mode_reason: ModeReason,
    /// Whether the driver works on the UMEM itself.
    pub zero_copy: bool,
    /// How many receive queues are polled.
    pub queues: u32,
    /// How many receive queues there are. Frames on those that are not polled go to the kernel.
    pub queues_there: u32,
    /// How many engines share the queues.
    pub engines: u32,
    /// Whether packets may span several chunks.
    pub multi_buffer: bool,
    /// The interface's MTU when it was opened, in bytes of IP packet.
    pub mtu: u32,
    /// The features that fell back to a slower way.
    pub fallbacks: Vec<Fallback>,
}

impl fmt::Display for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let copy = if self.zero_copy { "zero-copy" } else { "copy" };
        let buffers = if self.multi_buffer { ", multi-buffer" } else { "" };
        let Self { interface, mode, mode_reason, queues, queues_there, engines, mtu, .. } = self;
        write!(f, "AF_XDP on {interface}: {mode} ({mode_reason}), {copy}, {queues} ")?;
        if queues_there > queues {
            write!(f, "of {queues_there} ")?;
        }
        write!(f, "queue(s), ")?;
        if *engines > 1 {
            write!(f, "{engines} engines, ")?;
        }
        write!(f, "MTU {mtu}{buffers}")
    }
}
