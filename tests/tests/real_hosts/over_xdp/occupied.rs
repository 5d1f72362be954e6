//! The errors of a host that finds its interface in use: by another's XDP program, however and
//! wherever that is attached, or by another's AF_XDP socket. The advice is followed as it stands.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::{
    fs,
    os::fd::{AsFd, OwnedFd},
    path::Path,
    process::{Child, Command},
};

use libbpf_rs::{Object, ObjectBuilder, ProgramMut, Xdp, XdpFlags};
use rma_core::port::Port;
use rma_lab::{Lab, LabConfig, Netns};
use rma_xdp::{
    Host, HostConfig, HostError,
    config::DEFAULT_PORT,
    device::{
        Device,
        net::Interface,
        xdp::{Mode, SteeredSockets, XdpConfig, XdpError},
    },
};
use rustix::io::{FdFlags, fcntl_setfd};

use super::interface_lost::wait_for;

const MODES: [Mode; 3] = [Mode::Auto, Mode::Native, Mode::Generic];

/// A program, loaded and attached nowhere: that of this repository will do.
fn program() -> Object {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../rma-xdp/rma-steer.bpf.o");
    let bytes = fs::read(path).unwrap();
    ObjectBuilder::default().open_memory(&bytes).unwrap().load().unwrap()
}

fn with_program<T>(object: &Object, run: impl FnOnce(&ProgramMut<'_>) -> T) -> T {
    run(&object.progs_mut().next().unwrap())
}

fn index(netns: &Netns, interface: &str) -> i32 {
    let _inside = netns.enter().unwrap();
    Interface::open(interface).unwrap().index.cast_signed()
}

/// Attaches a program as `ip link` does, where it stays until somebody detaches it.
fn attach(netns: &Netns, interface: &str, flags: XdpFlags) {
    let index = index(netns, interface);
    let _inside = netns.enter().unwrap();
    let object = program();
    with_program(&object, |it| Xdp::new(it.as_fd()).attach(index, flags)).unwrap();
}

fn open(netns: &Netns, mode: Mode) -> Result<Host, HostError> {
    let _inside = netns.enter().unwrap();
    Host::open(HostConfig::xdp(Lab::INTERFACE).with(|it| {
        it.addresses = vec![Lab::A_V4.into()];
        it.device = Device::xdp(Lab::INTERFACE).in_mode(mode);
    }))
}

fn refusal(netns: &Netns, mode: Mode) -> XdpError {
    match open(netns, mode) {
        Err(HostError::Xdp(error)) => error,
        Err(error) => panic!("{error}"),
        Ok(host) => panic!("opened {}", host.info()),
    }
}

/// Types what the error says in backquotes into a shell.
fn follow_advice(netns: &Netns, error: &XdpError) {
    let text = error.to_string();
    let command = text.split('`').nth(1).unwrap_or_else(|| panic!("no command in {text:?}"));
    netns.exec(&["sh", "-c", command]).unwrap();
}

/// Starts a program that holds a descriptor of a process that has gone.
fn heir(descriptor: OwnedFd) -> Child {
    fcntl_setfd(&descriptor, FdFlags::empty()).unwrap();
    Command::new("sleep").arg("3600").spawn().unwrap()
}

fn end(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_program_that_was_attached_by_hand_is_detached_by_the_command_that_is_told() {
    let lab = Lab::new(&LabConfig::default()).unwrap();
    for place in ["native", "generic"] {
        for mode in MODES {
            let flags = if place == "native" { XdpFlags::DRV_MODE } else { XdpFlags::SKB_MODE };
            attach(lab.a(), Lab::INTERFACE, flags);
            let error = refusal(lab.a(), mode);
            let text = error.to_string();
            let said = format!("interface rma0 already has an XDP program attached ({place}, id ");
            assert!(text.starts_with(&said), "{mode:?}: {text}");
            assert!(text.contains("name \"rma_steer\""), "{text}");
            follow_advice(lab.a(), &error);
            drop(open(lab.a(), mode).unwrap());
        }
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_program_on_top_of_the_interface_is_told_as_what_it_is() {
    let lab = Lab::new(&LabConfig::default()).unwrap();
    let a = lab.a();
    let told = |on_top: &str| {
        for mode in MODES {
            attach(a, on_top, XdpFlags::SKB_MODE);
            let error = refusal(a, mode);
            let text = error.to_string();
            assert!(text.contains(&format!("has one: {on_top} (generic, id ")), "{text}");
            follow_advice(a, &error);
            drop(open(a, mode).unwrap());
        }
    };
    a.ip(&["link", "add", "link", Lab::INTERFACE, "name", "rma0.100", "type", "macvlan"]).unwrap();
    told("rma0.100");
    // One that was moved away is on top of the interface as before.
    attach(a, "rma0.100", XdpFlags::SKB_MODE);
    a.ip(&["link", "set", "dev", "rma0.100", "netns", lab.b().name()]).unwrap();
    let text = refusal(a, Mode::Auto).to_string();
    assert!(text.contains("none is in this network namespace"), "{text}");
    lab.b().ip(&["link", "del", "dev", "rma0.100"]).unwrap();

    a.ip(&["link", "add", "bridge0", "type", "bridge"]).unwrap();
    a.ip(&["link", "set", "dev", Lab::INTERFACE, "master", "bridge0"]).unwrap();
    told("bridge0");
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn the_holder_of_an_attached_program_is_named_where_no_command_detaches_it() {
    let lab = Lab::new(&LabConfig::default()).unwrap();
    let index = index(lab.a(), Lab::INTERFACE);
    let object = program();
    let link = {
        let _inside = lab.a().enter().unwrap();
        with_program(&object, |it| it.attach_xdp(index)).unwrap()
    };
    let text = refusal(lab.a(), Mode::Auto).to_string();
    assert!(text.contains("which this process holds): drop that host first"), "{text}");

    let child = heir(link.as_fd().try_clone_to_owned().unwrap());
    drop(link);
    for mode in MODES {
        let text = refusal(lab.a(), mode).to_string();
        let said = format!("which process {} (sleep) holds): stop that process", child.id());
        assert!(text.contains(&said) && !text.contains("`ip "), "{text}");
    }
    end(child);
    wait_for("the program to be gone", || open(lab.a(), Mode::Auto).ok());
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn the_owner_of_a_queue_is_named() {
    let lab = Lab::new(&LabConfig::default()).unwrap();
    let config = XdpConfig::new(Lab::INTERFACE, &[Port(DEFAULT_PORT + 9)], &[Lab::A_V4.into()]);
    let mut sockets = {
        let _inside = lab.a().enter().unwrap();
        SteeredSockets::open(&config, 1500).unwrap()
    };
    let socket = sockets.socket_mut(0).unwrap().fd().try_clone_to_owned().unwrap();
    drop(sockets);
    let text = refusal(lab.a(), Mode::Auto).to_string();
    let said = "receive queue 0 of interface rma0 is in use by another AF_XDP socket of ";
    // Many kernels do not tell whose a socket is, and then nobody is named who is not seen to be
    // the only one.
    let own = text.starts_with(&format!("{said}this process: drop the host"));
    assert!(own || text.contains("AF_XDP socket: stop the program that owns it"), "{text}");

    let child = {
        let _inside = lab.a().enter().unwrap();
        heir(socket)
    };
    let text = refusal(lab.a(), Mode::Auto).to_string();
    let named = format!("{said}process {} (sleep): stop that process", child.id());
    assert_eq!(text, named);
    end(child);
    wait_for("the queue to be free", || open(lab.a(), Mode::Auto).ok());
}
