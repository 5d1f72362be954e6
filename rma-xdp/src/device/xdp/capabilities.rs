//! The capabilities that AF_XDP needs, and those that the calling thread lacks.
//!
//! Nothing is refused here: a kernel that needs fewer, or is asked inside a container that gives
//! more, decides by itself. Only when it has said no is it told what was missing.

use core::fmt;

use rustix::{
    process::{Resource, getrlimit},
    thread::{CapabilitySet, capabilities},
};

/// The capabilities that a host over AF_XDP needs, and their purposes.
const NEEDED: [(CapabilitySet, &str); 5] = [
    // The XDP program, its attachment, and neighbours.
    (CapabilitySet::NET_ADMIN, "CAP_NET_ADMIN"),
    // AF_XDP sockets.
    (CapabilitySet::NET_RAW, "CAP_NET_RAW"),
    // Maps and programs.
    (CapabilitySet::BPF, "CAP_BPF"),
    // Linux 6.18 does not load the program without.
    (CapabilitySet::PERFMON, "CAP_PERFMON"),
    // UMEM is locked memory.
    (IPC_LOCK, "CAP_IPC_LOCK"),
];
const IPC_LOCK: CapabilitySet = CapabilitySet::IPC_LOCK;

/// Some of the capabilities that AF_XDP needs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Capabilities(CapabilitySet);

impl Capabilities {
    /// All of them.
    pub const NEEDED: Self = Self(
        CapabilitySet::NET_ADMIN
            .union(CapabilitySet::NET_RAW)
            .union(CapabilitySet::BPF)
            .union(CapabilitySet::PERFMON)
            .union(IPC_LOCK),
    );

    /// CAP_IPC_LOCK, which lifts the limit on locked memory.
    pub(super) const LOCKED_MEMORY: Self = Self(IPC_LOCK);

    /// Returns the capabilities of [`Capabilities::NEEDED`] that the calling thread lacks.
    /// CAP_SYS_ADMIN stands for CAP_BPF and CAP_PERFMON, and no limit for locked memory for
    /// CAP_IPC_LOCK.
    pub(super) fn missing() -> Self {
        // A kernel that does not tell: then all may be.
        let there = capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
        let unlimited = getrlimit(Resource::Memlock).current.is_none();
        Self::missing_of(there, unlimited)
    }

    /// Returns those that a thread lacks which has these, as a mask in the kernel's order, and
    /// whose locked memory has no limit if `unlimited`.
    #[must_use]
    pub fn lacking(there: u64, unlimited: bool) -> Self {
        Self::missing_of(CapabilitySet::from_bits_retain(there), unlimited)
    }

    fn missing_of(there: CapabilitySet, unlimited: bool) -> Self {
        let mut missing = Self::NEEDED.0 - there;
        if there.contains(CapabilitySet::SYS_ADMIN) {
            missing -= CapabilitySet::BPF | CapabilitySet::PERFMON;
        }
        if unlimited {
            missing -= IPC_LOCK;
        }
        Self(missing)
    }

    /// Whether it is none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    fn names(self) -> impl DoubleEndedIterator<Item = &'static str> {
        let named = move |(set, name)| self.0.contains(set).then_some(name);
        NEEDED.into_iter().filter_map(named)
    }

    /// As `setcap` takes them.
    #[must_use]
    pub fn as_setcap(self) -> String {
        let names: Vec<String> = self.names().map(str::to_lowercase).collect();
        format!("{}+ep", names.join(","))
    }
}

impl fmt::Display for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.names().count();
        for (index, name) in self.names().enumerate() {
            let before = match index {
                0 => "",
                _ if index + 1 == count => " and ",
                _ => ", ",
            };
            write!(f, "{before}{name}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_capabilities_are_named_and_nothing_else() {
        let all = Capabilities::NEEDED.0;
        assert!(Capabilities::missing_of(all, false).is_empty());
        for (set, name) in NEEDED {
            let missing = Capabilities::missing_of(all - set, false);
            assert_eq!(missing.to_string(), name);
        }
        let none = Capabilities::missing_of(CapabilitySet::empty(), true);
        assert_eq!(none.to_string(), "CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF and CAP_PERFMON");
        let admin = Capabilities::missing_of(CapabilitySet::SYS_ADMIN, false);
        assert_eq!(admin.to_string(), "CAP_NET_ADMIN, CAP_NET_RAW and CAP_IPC_LOCK");
    }
}
