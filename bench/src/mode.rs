//! The mode in which AF_XDP hosts of this process, and the floors beside them, attach their
//! steering program: the one that the device's rule chooses, unless `--xdp-mode` names another.

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
    /// The fastest mode that suits the driver; the output names it, and the reason.
    #[default]
    Auto,
    /// In the driver; fails if the driver cannot.
    Native,
    /// In the driver, without zero-copy.
    NativeCopy,
    /// In the driver with zero-copy, even where that is known to lose frames; fails if the driver
    /// cannot.
    NativeZc,
    /// In the kernel's network stack: slower, works with every driver.
    Generic,
}

impl XdpMode {
    /// Has all hosts and floors that are opened later in this mode. Only the first call counts.
    pub fn ask_for(self) {
        let _ = ASKED_FOR.set(self);
    }

    /// Returns the mode that was asked for.
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
