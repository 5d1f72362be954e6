//! The cores that threads are pinned to: engines' first, then one for each thread that issues ops.
//!
//! Not here: their NUMA nodes ([`numa`](crate::numa)).

use core::{fmt, str::FromStr};
use std::{fs, io, path::Path};

/// The highest number of a core.
const CORE_MAX: usize = 1 << 16;

/// Cores as people type them: `2`, `2,3`, `2-5,8`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cores(Vec<usize>);

/// An error about the cores that were asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CoresError {
    /// Not a list of cores.
    #[error("{text:?} is no list of cores: give one such as 2, or 2,3, or 2-5")]
    Text {
        /// The text.
        text: String,
    },
    /// A core is named twice.
    #[error(
        "core {core} is named twice: two threads that spin on it would each wait for the other; name another"
    )]
    Twice {
        /// The core.
        core: usize,
    },
    /// As many are needed as there are threads.
    #[error("--cores names {given} cores, and there {}: name as many", match threads {
        1 => "is one thread to pin".to_owned(),
        _ => format!("are {threads} threads to pin: engines, and threads that issue ops"),
    })]
    Count {
        /// How many were given.
        given: usize,
        /// How many threads there are.
        threads: usize,
    },
    /// The core is offline.
    #[error(
        "core {core} is offline: name another in --cores, or: echo 1 > /sys/devices/system/cpu/cpu{core}/online"
    )]
    Offline {
        /// The core.
        core: usize,
    },
    /// There is none, or this process may not use it.
    #[error(
        "core {core} is not this process's, which may use {}: name one of these in --cores, or look at `taskset` and cpusets",
        Text(available)
    )]
    NotThere {
        /// The core.
        core: usize,
        /// Those that there are.
        available: Vec<usize>,
    },
    /// The other side's engine spins there.
    #[error(
        "core {core} is that of the engine of `rma-bench serve` on this same machine: name another in --cores"
    )]
    Servers {
        /// The core.
        core: usize,
    },
    /// Latency of idle states cannot be bounded.
    #[error(
        "/dev/cpu_dma_latency, which keeps cores from sleeping deeply: {why}; run it as root, or leave out --low-latency"
    )]
    LowLatency {
        /// The error of the system.
        why: io::Error,
    },
}

/// Cores as `taskset` shows them.
pub(crate) struct Text<'a>(pub(crate) &'a [usize]);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranges = self.0.chunk_by(|a, b| a + 1 == *b).map(|range| match range {
            [one] => one.to_string(),
            _ => format!("{}-{}", range[0], range[range.len() - 1]),
        });
        f.write_str(&ranges.collect::<Vec<_>>().join(","))
    }
}

impl FromStr for Cores {
    type Err = CoresError;

    fn from_str(text: &str) -> Result<Self, CoresError> {
        let no_list = || CoresError::Text { text: text.to_owned() };
        let cores = list(text).filter(|it| !it.is_empty()).ok_or_else(no_list)?;
        let twice = (1..cores.len()).find(|&at| cores[..at].contains(&cores[at]));
        twice.map_or(Ok(()), |at| Err(CoresError::Twice { core: cores[at] }))?;
        Ok(Self(cores))
    }
}

/// Reads a list of numbers and ranges, as the kernel writes it too.
pub(crate) fn list(text: &str) -> Option<Vec<usize>> {
    let mut all = Vec::new();
    for part in text.split(',').filter(|_| !text.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last > CORE_MAX {
            return None;
        }
        all.extend(first..=last);
    }
    Some(all)
}

impl Cores {
    /// Their numbers, in order.
    pub(crate) fn all(&self) -> &[usize] {
        &self.0
    }

    /// Looks whether so many threads can be pinned to them.
    ///
    /// # Errors
    /// If there are more or fewer of them, or one is not there.
    pub(crate) fn check(&self, threads: usize) -> Result<(), CoresError> {
        let given = self.0.len();
        if given != threads {
            return Err(CoresError::Count { given, threads });
        }
        let available = available();
        let Some(&core) = self.0.iter().find(|it| !available.contains(it)) else { return Ok(()) };
        if is_offline(Path::new("/sys/devices/system/cpu"), core) {
            return Err(CoresError::Offline { core });
        }
        Err(CoresError::NotThere { core, available })
    }

    /// Looks whether a server that is on this machine has other ones.
    ///
    /// # Errors
    /// If not.
    pub(crate) fn check_other_side(&self, servers: &[usize]) -> Result<(), CoresError> {
        let shared = self.0.iter().find(|it| servers.contains(it));
        shared.map_or(Ok(()), |&core| Err(CoresError::Servers { core }))
    }
}

/// The cores that the calling thread may use, in order.
pub(crate) fn available() -> Vec<usize> {
    let cores = core_affinity::get_core_ids().unwrap_or_default();
    let mut available: Vec<usize> = cores.into_iter().map(|core| core.id).collect();
    available.sort_unstable();
    available
}

/// Whether there is such a core, and it is switched off.
fn is_offline(root: &Path, core: usize) -> bool {
    let in_file = |name| {
        let text = fs::read_to_string(root.join(name)).unwrap_or_default();
        list(text.trim()).is_some_and(|it| it.contains(&core))
    };
    in_file("present") && !in_file("online")
}

/// Keeps all cores out of idle states that take long to leave, until the program ends.
///
/// # Errors
/// If this process may not.
pub(crate) fn keep_awake() -> Result<(), CoresError> {
    use std::{fs::File, io::Write, sync::OnceLock};
    // The kernel keeps to it as long as the file is open.
    static HELD: OnceLock<File> = OnceLock::new();
    let hold = || {
        let mut file = File::options().write(true).open("/dev/cpu_dma_latency")?;
        file.write_all(&0_i32.to_ne_bytes())?;
        Ok(file)
    };
    HELD.set(hold().map_err(|why| CoresError::LowLatency { why })?).ok();
    Ok(())
}

/// The machine that this is since it was started: equal on both sides if they share its cores.
/// Empty if the system does not tell.
pub(crate) fn boot_id() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use rma_lab::Scratch;

    use super::*;

    fn refused(text: &str) -> String {
        text.parse::<Cores>().unwrap_err().to_string()
    }

    #[test]
    fn cores_are_a_list_with_ranges_and_each_is_named_once() {
        let of = |text: &str| text.parse::<Cores>().unwrap().0;
        assert_eq!((of("3"), of("4,2"), of("2-4,0")), (vec![3], vec![4, 2], vec![2, 3, 4, 0]));
        for text in ["", "a", "1,", "3-2", "-1", "1;2", "0-99999999999", "1 "] {
            assert!(refused(text).contains("is no list of cores"), "{text}");
        }
        assert!(refused("1,0-2").contains("core 1 is named twice"));
    }

    #[test]
    fn cores_that_are_not_there_or_too_few_are_told_with_those_that_are() {
        let check = |text: &str, threads| text.parse::<Cores>().unwrap().check(threads);
        let error = check("9999", 1).unwrap_err().to_string();
        assert!(error.contains("core 9999 is not this process's, which may use "), "{error}");
        let error = check("0,1", 3).unwrap_err().to_string();
        assert!(
            error.contains("names 2 cores, and there are 3 threads to pin: engines, and"),
            "{error}"
        );
        assert!(check("0,1", 1).unwrap_err().to_string().contains("is one thread to pin: name"));
        let mine = available();
        Cores(vec![mine[0]]).check(1).unwrap();
        assert!(Cores(vec![3, 5]).check_other_side(&[4, 5]).is_err());
        Cores(vec![3]).check_other_side(&[]).unwrap();
        assert_eq!(Text(&[0, 1, 2, 5]).to_string(), "0-2,5");
    }

    #[test]
    fn a_core_that_is_present_and_not_online_is_offline() {
        let root = Scratch::new();
        fs::write(root.path().join("present"), "0-3\n").unwrap();
        fs::write(root.path().join("online"), "0,2-3\n").unwrap();
        let found = [0, 1, 4].map(|core| is_offline(root.path(), core));
        assert_eq!(found, [false, true, false]);
        assert!(!is_offline(Path::new("/nosuch"), 1));
    }
}
