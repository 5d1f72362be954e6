//! A host over AF_XDP under exactly the capabilities that the documentation names, as another user,
//! and under each set of them with one taken away.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::{
    fs,
    os::unix::fs::{PermissionsExt, chown},
    path::{Path, PathBuf},
    process::{Command, Output},
};

use rma_lab::{Lab, LabConfig, Scratch};

const DOCUMENTED: [&str; 5] = ["net_admin", "net_raw", "bpf", "perfmon", "ipc_lock"];

/// `nobody`: anybody but root.
const USER: u32 = 65534;

/// The program, and its state directory, where any user may get at them.
struct Place {
    scratch: Scratch,
    program: PathBuf,
}

impl Place {
    fn new() -> Self {
        let scratch = Scratch::new();
        let program = scratch.path().join("open-host");
        fs::copy(env!("CARGO_BIN_EXE_open-host"), &program).unwrap();
        for path in [scratch.path(), &program] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        fs::create_dir(scratch.path().join("state")).unwrap();
        chown(scratch.path().join("state"), Some(USER), Some(USER)).unwrap();
        Self { scratch, program }
    }

    fn state(&self) -> PathBuf {
        self.scratch.path().join("state")
    }
}

/// Runs the program in `netns` as [`USER`] with these capabilities and no others.
fn open(netns: &str, place: &Place, capabilities: &[&str]) -> Output {
    let only = capabilities.iter().fold("-all".to_owned(), |all, it| format!("{all},+{it}"));
    let user = format!("--reuid={USER}");
    let group = format!("--regid={USER}");
    let as_user = ["setpriv", &user, &group, "--clear-groups", "--no-new-privs"];
    Command::new("ip")
        .args(["netns", "exec", netns])
        .args(as_user)
        .args(["--inh-caps", &only, "--ambient-caps", &only, "--bounding-set", &only])
        .args([&place.program, Path::new(Lab::INTERFACE)])
        .arg(Lab::A_V4.to_string())
        .arg(place.state())
        .output()
        .unwrap()
}

fn said(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.is_empty(), "{errors}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn the_documented_capabilities_are_enough_and_each_that_is_missing_is_named() {
    let lab = Lab::new(&LabConfig::default()).unwrap();
    let place = Place::new();
    let output = open(lab.a().name(), &place, &DOCUMENTED);
    let text = said(&output);
    assert!(output.status.success() && text.starts_with("opened AF_XDP on rma0"), "{text}");

    for missing in DOCUMENTED {
        let others: Vec<&str> = DOCUMENTED.into_iter().filter(|&it| it != missing).collect();
        let output = open(lab.a().name(), &place, &others);
        let text = said(&output);
        let name = format!("CAP_{}", missing.to_uppercase());
        assert!(!output.status.success(), "without {name}: {text}");
        assert!(text.contains(&format!("this process lacks {name}")), "without {name}: {text}");
        assert!(
            text.contains("setcap cap_net_admin,cap_net_raw,cap_bpf,cap_perfmon,cap_ipc_lock+ep")
        );
    }
    let text = said(&open(lab.a().name(), &place, &[]));
    let all =
        "this process lacks CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF, CAP_PERFMON and CAP_IPC_LOCK";
    assert!(text.contains(all), "{text}");
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn capabilities_that_count_in_a_user_namespace_alone_are_not_called_missing() {
    let place = Place::new();
    let own_interface = format!(
        "ip link add {0} type veth peer name peer0 && ip link set {0} up && \
         ip addr add {1}/24 dev {0} && exec \"$@\"",
        Lab::INTERFACE,
        Lab::A_V4
    );
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--net", "sh", "-c", &own_interface, "sh"])
        .args([&place.program, Path::new(Lab::INTERFACE)])
        .arg(Lab::A_V4.to_string())
        .arg(place.state())
        .output()
        .unwrap();
    let text = said(&output);
    let all =
        "though this process has CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF, CAP_PERFMON and CAP_IPC_LOCK";
    assert!(text.contains(all) && text.contains("a user namespace"), "{text}");
}
