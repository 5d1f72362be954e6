//! In which mode the AF_XDP hosts of this process have their steering program, and the floors
//! beside them: as the device's rule has it, unless `--xdp-mode` says otherwise.

use std::sync::OnceLock;

use clap::ValueEnum;
use rma_xdp::{
    Device, HostConfig,
    xdp::{self, XdpConfig},
};

/// As global as the command line that it comes from.
static ASKED_FOR: OnceLock<XdpMode> = OnceLock::new();

/// A mode, as people type it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum XdpMode {
    /// The faster one, as the driver is; the output says which, and why.
    #[default]
    Auto,
    /// In the driver, or not at all.
    Native,
    /// The same, without zero-copy.
    NativeCopy,
    /// The same, with zero-copy or not at all: also where it is known to lose frames.
    NativeZc,
    /// In the network stack.
    Generic,
}

impl XdpMode {
    /// Has all hosts and floors that are opened later in this mode. Only the first call counts.
    pub fn ask_for(self) {
        let _ = ASKED_FOR.set(self);
    }

    /// What was asked for.
    #[must_use]
    pub fn asked_for() -> Self {
        ASKED_FOR.get().copied().unwrap_or_default()
    }

    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Native => "native",
            Self::NativeCopy => "native-copy",
            Self::NativeZc => "native-zc",
            Self::Generic => "generic",
        }
    }
}

impl From<XdpMode> for xdp::Mode {
    fn from(mode: XdpMode) -> Self {
        match mode {
            XdpMode::Auto => Self::Auto,
            XdpMode::Native => Self::Native,
            XdpMode::NativeCopy => Self::NativeCopy,
            XdpMode::NativeZc => Self::NativeZeroCopy,
            XdpMode::Generic => Self::Generic,
        }
    }
}

/// A host over AF_XDP on `interface`, in the mode that was asked for.
pub fn host(interface: &str) -> HostConfig {
    let device = Device::xdp(interface).in_mode(XdpMode::asked_for().into());
    HostConfig::xdp(interface).with(|it| it.device = device)
}

/// `sockets` in the mode that was asked for: that of the hosts which they are compared with.
pub fn sockets(sockets: XdpConfig) -> XdpConfig {
    sockets.with(|it| it.mode = XdpMode::asked_for().into())
}
