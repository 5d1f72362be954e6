//! The present machine: who runs this, which programs and kernel features there are.
//!
//! Looks, and changes nothing but a network namespace of its own, which it removes again. What
//! follows from the answers is decided in `requirements`.

use std::{
    env, fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{self, Command, Stdio},
};

/// Capabilities that the demo and the privileged tests use, with their bits.
/// <https://github.com/torvalds/linux/blob/v6.12/include/uapi/linux/capability.h>
const CAPABILITIES: [(&str, u32); 4] = [
    // Interfaces, routes, attaching XDP programs.
    ("CAP_NET_ADMIN", 12),
    // AF_XDP sockets.
    ("CAP_NET_RAW", 13),
    // Making and entering network namespaces.
    ("CAP_SYS_ADMIN", 21),
    // Loading XDP programs.
    ("CAP_BPF", 39),
];

/// Whether the effective user is root.
pub(crate) fn is_root() -> bool {
    // Real, effective, saved, file system.
    status_field("Uid:").is_some_and(|ids| ids.split_whitespace().nth(1) == Some("0"))
}

/// The capabilities that root lacks here, as in a container.
pub(crate) fn missing_capabilities() -> Vec<&'static str> {
    let effective =
        status_field("CapEff:").and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    missing_of(effective.unwrap_or(0))
}

fn missing_of(effective: u64) -> Vec<&'static str> {
    let missing = CAPABILITIES.iter().filter(|(_, bit)| effective >> bit & 1 == 0);
    missing.map(|(name, _)| *name).collect()
}

/// A kernel feature that the lab needs: its name, with the option of the kernel's configuration,
/// and whether it is there.
type Feature = (&'static str, fn() -> bool);

const FEATURES: [Feature; 3] = [
    ("AF_XDP sockets (CONFIG_XDP_SOCKETS)", has_af_xdp),
    ("the bpf system call (CONFIG_BPF_SYSCALL)", || {
        Path::new("/proc/sys/kernel/unprivileged_bpf_disabled").exists()
    }),
    ("network namespaces (CONFIG_NET_NS)", || Path::new("/proc/self/ns/net").exists()),
];

/// The features that the running kernel lacks.
pub(crate) fn missing_features() -> Vec<&'static str> {
    FEATURES.iter().filter(|(_, is_there)| !is_there()).map(|(name, _)| *name).collect()
}

/// The socket family registers its protocol when the kernel starts.
fn has_af_xdp() -> bool {
    let protocols = fs::read_to_string("/proc/net/protocols").unwrap_or_default();
    protocols.lines().any(|line| line.split_whitespace().next() == Some("XDP"))
}

/// A command that a try-out needed, and what it said when it failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The command line.
    pub(crate) command: String,
    /// Its standard error, trimmed.
    pub(crate) said: String,
}

/// Makes a veth pair in a network namespace, and removes both. Nothing less shows that the lab can:
/// veth may be a module that the kernel loads on demand, and containers refuse in many ways. The
/// caller is root.
pub(crate) fn try_veth() -> Result<(), Refusal> {
    // Named like the lab's, whose sweep removes it if this process is killed here.
    let netns = format!("rma-probe-{}-0", process::id());
    ip(&["netns", "add", &netns])?;
    let veth = ["type", "veth", "peer", "name", "rma1"];
    let added = ip(&[&["-n", &netns, "link", "add", "rma0"][..], &veth].concat());
    added.and(ip(&["netns", "delete", &netns]))
}

/// Runs `ip`.
pub(crate) fn ip(arguments: &[&str]) -> Result<(), Refusal> {
    let refusal = |said: &str| Refusal {
        command: format!("ip {}", arguments.join(" ")),
        said: said.trim().to_owned(),
    };
    let output = Command::new("ip").args(arguments).stdin(Stdio::null()).output();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(refusal(&String::from_utf8_lossy(&output.stderr))),
        Err(error) => Err(refusal(&error.to_string())),
    }
}

/// Removes network namespaces; one that is gone already is no matter.
pub(crate) fn delete_namespaces(names: &[String]) {
    for name in names {
        // Whoever finds it still there is told by `ip netns list`.
        let _ = ip(&["netns", "delete", name]);
    }
}

/// Namespaces of the lab whose makers no longer run, by name.
pub(crate) fn abandoned_namespaces() -> Vec<String> {
    let entries = fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names
        .filter(|name| maker(name).is_some_and(|pid| !Path::new("/proc").join(pid).exists()))
        .collect()
}

/// The process id in a name of the form `rma-TAG-PID-N`.
fn maker(netns: &str) -> Option<&str> {
    let (rest, number) = netns.strip_prefix("rma-")?.rsplit_once('-')?;
    let (_tag, pid) = rest.rsplit_once('-')?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (digits(number) && digits(pid)).then_some(pid)
}

/// Returns the path of a program, if it can be run.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// Whether a C program that includes `header` compiles and links with `library`.
pub(crate) fn links(header: &str, library: &str) -> bool {
    let compiler = Command::new("cc")
        .args(["-x", "c", "-", "-o", "/dev/null"])
        .arg(format!("-l{library}"))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut compiler) = compiler else { return false };
    let source = format!("#include <{header}>\nint main(void) {{ return 0; }}\n");
    let mut stdin = compiler.stdin.take().expect("piped above");
    // A compiler that reads no input fails, which is the answer then.
    let _ = stdin.write_all(source.as_bytes());
    drop(stdin);
    compiler.wait().is_ok_and(|status| status.success())
}

/// Whether a command runs and succeeds; what it prints is nobody's concern.
pub(crate) fn succeeds(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn status_field(name: &str) -> Option<String> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capability_that_is_not_effective_is_named() {
        assert_eq!(missing_of(u64::MAX), Vec::<&str>::new());
        assert_eq!(missing_of(!(1 << 39)), ["CAP_BPF"]);
        assert_eq!(missing_of(0).len(), CAPABILITIES.len());
    }

    #[test]
    fn only_the_lab_s_names_carry_a_maker() {
        assert_eq!(maker("rma-two-words-123-45"), Some("123"));
        for other in ["", "mine", "rma-", "rma-a-123", "rma-a-x-0", "rma-a-1-x", "rma-a--0"] {
            assert_eq!(maker(other), None, "{other}");
        }
    }

    #[test]
    fn a_program_that_is_not_there_is_not_found() {
        assert!(find_program("sh").is_some());
        assert_eq!(find_program("no-such-program"), None);
    }

    #[test]
    fn a_command_that_fails_is_quoted_with_its_words() {
        let refusal = ip(&["no-such-object"]).unwrap_err();
        assert_eq!(refusal.command, "ip no-such-object");
        assert!(refusal.said.contains("no-such-object"), "{refusal:?}");
    }
}
