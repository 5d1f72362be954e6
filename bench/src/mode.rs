//! The mode in which AF_XDP hosts of this process, and the floors beside them, attach their
//! steering program: the one that the device's rule chooses, unless `--xdp-mode` names another.

use std::sync::OnceLock;

use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser},
};
use rma_xdp::{
    HostConfig,
    device::{
        Device,
        xdp::{Mode, XdpConfig},
    },
};

/// As global as the command line that it comes from.
static ASKED_FOR: OnceLock<Mode> = OnceLock::new();

/// The mode of whatever is measured on this machine alone.
#[derive(Args, Clone, Copy, Debug)]
pub struct ModeArgs {
    /// Mode in which AF_XDP hosts, and the floors beside them, attach their steering program. auto:
    /// the fastest that suits the driver; the output names it, and the reason. native: in the
    /// driver; native-copy without zero-copy, native-zc with it even where that is known to lose
    /// frames; each fails if the driver cannot. generic: in the network stack.
    #[arg(long, value_parser = parser(), default_value = "auto", global = true, value_name = "MODE")]
    xdp_mode: Mode,
}

impl ModeArgs {
    /// Has all hosts and floors that are opened later in this mode. Only the first call counts.
    pub fn ask_for(self) {
        let _ = ASKED_FOR.set(self.xdp_mode);
    }
}

/// Reads a mode, as people type it.
fn parser() -> impl TypedValueParser<Value = Mode> {
    PossibleValuesParser::new(Mode::ALL.map(Mode::name)).map(|name| {
        Mode::ALL
            .into_iter()
            .find(|it| it.name() == name)
            .expect("only names of modes are possible")
    })
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
