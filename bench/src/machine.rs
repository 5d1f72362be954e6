//! On what a figure was measured, so that no number travels without its conditions.

use std::fs;

use serde::Serialize;

/// The machine and how the run was set up.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// The processor's name.
    pub machine: String,
    /// How many cores this process may use.
    pub cores: usize,
    /// The kernel's release.
    pub kernel: String,
    /// The version of this program.
    pub version: &'static str,
}

impl Machine {
    /// This machine.
    #[must_use]
    pub fn here() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let name = cpuinfo
            .lines()
            .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
            .map_or("unknown processor", |(_, name)| name);
        let kernel = rustix::system::uname();
        Self {
            machine: name.trim().to_owned(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: kernel.release().to_string_lossy().into_owned(),
            version: env!("CARGO_PKG_VERSION"),
        }
    }
}
