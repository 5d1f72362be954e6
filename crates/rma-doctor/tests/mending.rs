//! Mends on veth pairs: found, applied, read back, undone; and by a person who pastes what is
//! printed.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::{path::Path, process::Command};

use rma_doctor::{
    Setting,
    mend::{self, Kernel, MendError, Outcome, Place, Running, Told, Wanted},
};
use rma_lab::{Netns, Scratch};

/// A namespace with a veth pair that is sick, and a `/sys` that shows it.
struct Sick {
    netns: Netns,
    root: Scratch,
}

impl Sick {
    fn new() -> Self {
        let netns = Netns::create("mend").unwrap();
        let sick = Self { netns, root: Scratch::new() };
        sick.link();
        let sys = sick.root.path().join("sys");
        std::fs::create_dir(&sys).unwrap();
        let of = format!("--net=/run/netns/{}", sick.netns.name());
        let mount = ["mount", "-t", "sysfs", "sysfs"];
        let mounted = Command::new("nsenter").arg(of).args(mount).arg(&sys).status();
        assert!(mounted.unwrap().success());
        sick
    }

    fn link(&self) {
        let add = "link add eth1 mtu 9000 numrxqueues 4 numtxqueues 4 type veth \
                   peer name peer1 mtu 9000 numrxqueues 4 numtxqueues 4";
        self.netns.ip(&add.split_whitespace().collect::<Vec<_>>()).unwrap();
        self.netns.exec(&["ethtool", "-K", "eth1", "gro", "on"]).unwrap();
    }

    fn kernel(&self) -> Running {
        Running::new(Some("eth1")).unwrap().below(self.root.path())
    }

    fn place(&self, kernel: &Running) -> Place {
        let place = Place::here(kernel.interface().cloned()).unwrap();
        Place { directory: self.root.path().join("rma/doctor"), ..place }
    }
}

impl Drop for Sick {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(self.root.path().join("sys")).status();
        assert!(unmounted.is_ok_and(|it| it.success()) || std::thread::panicking());
    }
}

/// The values that heal it.
fn healthy() -> Vec<Setting> {
    let interface = || "eth1".to_owned();
    let file = |name: &str, value: &str| Setting::File {
        path: format!("/sys/class/net/eth1/{name}"),
        value: value.to_owned(),
    };
    let off =
        |name: &str| Setting::Feature { interface: interface(), name: name.to_owned(), on: false };
    vec![
        off("rx-gro"),
        off("tx-tcp-segmentation"),
        Setting::Channels { interface: interface(), rx: Some(2), tx: Some(3), combined: None },
        Setting::Mtu { interface: interface(), mtu: 3400 },
        Setting::Up { interface: interface(), up: true },
        file("napi_defer_hard_irqs", "2"),
        file("gro_flush_timeout", "200000"),
    ]
}

fn values(kernel: &mut Running) -> Vec<String> {
    healthy().iter().map(|it| kernel.read(it).unwrap().value()).collect()
}

fn wanted(settings: &[Setting]) -> Vec<Wanted> {
    let of = |it: &Setting| Wanted { check: "check".to_owned(), setting: it.clone() };
    settings.iter().map(of).collect()
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn findings_on_veth_are_applied_read_back_and_undone() {
    let sick = Sick::new();
    let _entered = sick.netns.enter().unwrap();
    let mut kernel = sick.kernel();
    let place = sick.place(&kernel);
    let before = values(&mut kernel);
    assert_eq!(before, ["on", "on", "rx 4, tx 4", "9000", "down", "0", "0"]);
    let told = mend::apply(&mut kernel, &place, &wanted(&healthy())).unwrap();
    told.iter().for_each(|it| println!("{it}"));
    let is_applied = |it: &Told| matches!(it.outcome, Outcome::Applied(_));
    assert!(told.iter().all(is_applied), "{told:?}");
    let after = values(&mut kernel);
    assert_eq!(after, ["off", "off", "rx 2, tx 3", "3400", "up", "2", "200000"]);
    let again = mend::apply(&mut kernel, &place, &wanted(&healthy())).unwrap();
    assert!(again.iter().all(|it| matches!(it.outcome, Outcome::Already(_))), "{again:?}");
    // Somebody changes one of them, and keeps it.
    sick.netns.set_mtu("eth1", 1400).unwrap();
    let told = mend::undo(&mut kernel, &place).unwrap();
    told.iter().for_each(|it| println!("{it}"));
    let changed = told.iter().filter(|it| it.outcome != Outcome::Undone);
    assert_eq!(
        changed.map(|it| &it.outcome).collect::<Vec<_>>(),
        [&Outcome::Changed("1400".to_owned())]
    );
    assert_eq!(values(&mut kernel), ["on", "on", "rx 4, tx 4", "1400", "down", "0", "0"]);
    assert_eq!(mend::undo(&mut kernel, &place).unwrap(), []);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_person_who_pastes_what_is_printed_heals_it() {
    let sick = Sick::new();
    let commands: Vec<_> = healthy().iter().map(Setting::command).collect();
    println!("{}", commands.join("\n"));
    sick.netns.exec(&["sh", "-e", "-c", &commands.join("\n")]).unwrap();
    let _entered = sick.netns.enter().unwrap();
    let after = values(&mut sick.kernel());
    let healthy: Vec<_> = healthy().iter().map(Setting::value).collect();
    assert_eq!(after, healthy);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn refusals_of_the_driver_are_told_and_an_interface_that_was_made_anew_is_left() {
    let sick = Sick::new();
    let _entered = sick.netns.enter().unwrap();
    let mut kernel = sick.kernel();
    let place = sick.place(&kernel);
    let interface = || "eth1".to_owned();
    let feature =
        |name: &str| Setting::Feature { interface: interface(), name: name.to_owned(), on: false };
    let cannot = [
        (feature("nosuch"), "has no such setting"),
        (Setting::Eee { interface: interface(), on: false }, "has no such setting"),
        (Setting::RxRing { interface: interface(), length: 2048 }, "has no such setting"),
        (Setting::RssEqual { interface: interface(), queues: 2 }, "ethtool -X eth1 equal 2"),
        (Setting::Mtu { interface: interface(), mtu: 1 << 20 }, "Invalid argument"),
        (
            Setting::Channels { interface: interface(), rx: Some(99), tx: None, combined: None },
            "Invalid argument",
        ),
    ];
    let settings: Vec<_> = cannot.iter().map(|(it, _)| it.clone()).collect();
    let told = mend::apply(&mut kernel, &place, &wanted(&settings)).unwrap();
    for (told, (_, why)) in told.iter().zip(&cannot) {
        assert!(told.is_failure() && told.to_string().contains(why), "{told}");
    }
    assert!(!place.path().exists(), "what was refused is in no journal");

    // /sys of another namespace is not written to.
    let file = healthy().pop().unwrap();
    let other = Running::new(Some("eth1")).unwrap().below(Path::new("/")).read(&file);
    let why = other.unwrap_err().to_string();
    assert!(why.contains("No such file") || why.contains("another namespace"), "{why}");

    mend::apply(&mut kernel, &place, &wanted(&healthy())).unwrap();
    sick.netns.ip(&["link", "delete", "eth1"]).unwrap();
    let gone = mend::undo(&mut kernel, &place).unwrap();
    assert!(gone.iter().all(Told::is_failure), "{gone:?}");
    sick.link();
    let mut kernel = sick.kernel();
    let place = sick.place(&kernel);
    let anew = mend::undo(&mut kernel, &place).unwrap_err();
    assert!(matches!(anew, MendError::OtherInterface { .. }), "{anew}");
    assert_eq!(kernel.read(&healthy()[3]).unwrap().value(), "9000");
}
