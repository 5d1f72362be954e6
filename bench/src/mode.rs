//! The mode in which AF_XDP hosts of this process, and the floors beside them, attach their
//! steering program: the one that the device's rule chooses, unless `--xdp-mode` names another.

use std::sync::OnceLock;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use rma_xdp::{
    HostConfig,
    device::{
        Device,
        xdp::{Mode, XdpConfig},
    },
};

/// As global as the command line that it comes from.
static ASKED_FOR: OnceLock<Mode> = OnceLock::new();

/// Reads a mode, as people type it.
#[must_use]
pub fn parser() -> impl TypedValueParser<Value = Mode> {
    PossibleValuesParser::new(Mode::ALL.map(Mode::name)).map(|name| {
        Mode::ALL
            .into_iter()
            .find(|it| it.name() == name)
            .expect("only names of modes are possible")
    })
}

/// Has all hosts and floors that are opened later in this mode. Only the first call counts.
pub fn ask_for(mode: Mode) {
    let _ = ASKED_FOR.set(mode);
}

/// Returns the mode that was asked for.
#[must_use]
pub fn asked_for() -> Mode {
    ASKED_FOR.get().copied().unwrap_or_default()
}

/// A host over AF_XDP on `interface`, in the mode that was asked for.
pub fn host(interface: &str) -> HostConfig {
    let device = Device::xdp(interface).in_mode(asked_for());
    HostConfig::xdp(interface).with(|it| it.device = device)
}

/// `sockets` in the mode that was asked for: that of the hosts which they are compared with.
pub fn sockets(sockets: XdpConfig) -> XdpConfig {
    sockets.with(|it| it.mode = asked_for())
}
