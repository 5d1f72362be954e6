//! QEMU: the one that is installed, or, for NICs that it does not emulate, a newer one that is
//! unpacked below `target/vms`.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use super::{
    error::Setup,
    kernels::run,
    packages::{self, Lists},
};
use crate::host;

/// The program, by name.
pub(super) const QEMU: &str = "qemu-system-x86_64";

/// The packages that a newer emulator is unpacked from. It runs with the libraries of the one that
/// is installed.
const PACKAGES: [&str; 4] =
    ["qemu-system-x86", "qemu-system-common", "qemu-system-data", "seabios"];

/// A QEMU that can be run.
#[derive(Clone, Debug)]
pub(super) struct Emulator {
    pub(super) program: PathBuf,
    /// The folder that it is unpacked in, if it is.
    folder: Option<PathBuf>,
}

impl Emulator {
    /// One that emulates this device, or why there is none.
    pub(super) fn with(device: &str, cache: &Path) -> Result<Result<Self, String>, Setup> {
        let installed = Self { program: QEMU.into(), folder: None };
        if installed.emulates(device)? {
            return Ok(Ok(installed));
        }
        let folder = cache.join("qemu");
        if !folder.exists() {
            let suite = packages::backports().filter(|_| host::find_program("apt-get").is_some());
            let Some(suite) = suite else {
                return Ok(Err(format!("the QEMU that is installed does not emulate {device}")));
            };
            let lists = match Lists::of_suite(&suite, cache)? {
                Ok(lists) => lists,
                Err(why) => return Ok(Err(why)),
            };
            lists.update();
            eprintln!("downloading a QEMU that emulates {device}, from {suite} …");
            if let Err(error) = lists.unpack(&PACKAGES.map(str::to_owned), &folder) {
                return Ok(Err(format!(
                    "the QEMU that is installed does not emulate {device}, and one of {suite} \
                     could not be had: {error}"
                )));
            }
        }
        let program = folder.join("usr/bin").join(QEMU);
        let newer = Self { program, folder: Some(folder.clone()) };
        match newer.emulates(device) {
            Ok(true) => Ok(Ok(newer)),
            Ok(false) => Ok(Err(format!("the QEMU in {} does not either", folder.display()))),
            // It needs libraries that are not here.
            Err(error) => {
                Ok(Err(format!("the QEMU in {} does not run: {error}", folder.display())))
            }
        }
    }

    /// Asks for this device alone: for all of them it would load all its parts, and might find
    /// those of another QEMU.
    fn emulates(&self, device: &str) -> Result<bool, Setup> {
        let mut command = Command::new(&self.program);
        let said = run(command.args(["-device", &format!("{device},help")]))?;
        Ok(String::from_utf8_lossy(&said).starts_with(&format!("{device} options")))
    }

    /// The arguments that it is always started with: where its firmware is.
    pub(super) fn arguments(&self) -> Vec<PathBuf> {
        let shared = |folder: &PathBuf| {
            let places = ["qemu", "seabios"].map(|it| folder.join("usr/share").join(it));
            places.map(|place| ["-L".into(), place]).concat()
        };
        self.folder.as_ref().map(shared).unwrap_or_default()
    }
}
