//! Hosts of several engines whose queues, interface, number and engines change: whatever happens to
//! one engine is no other's trouble.
//!
//! On veth in native mode what an engine sends comes to the peer's engine of the same number, so
//! what one engine of a server does is seen by one engine of its client. What an engine does at a
//! given moment is said through [`Watched`], which encrypts for it.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::{
    collections::BTreeSet,
    sync::{Condvar, Mutex},
    thread,
};

use rma_crypto::{
    AeadProvider, DeriveJob, Key, KeySchedule, OpenJob, PreparedKey, ProviderKind, SealJob, fastest,
};
use rma_lab::{Lab, LabConfig, LabError, Netns};
use rma_tests::hosts::{Hosts, Setup};
use rma_xdp::{
    OpStatus, OpType, Permissions, WaitError,
    crypto::random_region_key,
    device::{Engines, InterfaceState, xdp::Mode},
};

use super::interface_lost::{Scene, wait_attachments, wait_for, wait_state};

/// The fate of the next frame at engine 1 of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Next {
    /// Go on.
    #[default]
    Go,
    /// The engine panics.
    Panic,
    /// Stand still.
    Stand,
    /// It stands still, until it is to go on.
    Stands,
}

/// The fastest provider, which has a say in what an engine does, and keeps what it sealed with.
#[derive(Debug, Default)]
struct Watched {
    next: Mutex<Next>,
    changed: Condvar,
    /// The IVs of all frames that were sealed.
    ivs: Mutex<BTreeSet<[u8; 12]>>,
}

impl Watched {
    fn new() -> &'static Self {
        Box::leak(Box::default())
    }

    fn say(&self, next: Next) {
        *self.next.lock().unwrap() = next;
        self.changed.notify_all();
    }

    fn wait(&self, wanted: Next) {
        let next = self.next.lock().unwrap();
        drop(self.changed.wait_while(next, |next| *next != wanted).unwrap());
    }

    fn look(&self) {
        if thread::current().name() != Some("rma-engine-1") {
            return;
        }
        let mut next = self.next.lock().unwrap();
        match *next {
            Next::Go | Next::Stands => {}
            Next::Panic => {
                *next = Next::Go;
                drop(next);
                panic!("as this test wants");
            }
            Next::Stand => {
                *next = Next::Stands;
                self.changed.notify_all();
                drop(self.changed.wait_while(next, |next| *next == Next::Stands).unwrap());
            }
        }
    }
}

impl AeadProvider for Watched {
    fn kind(&self) -> ProviderKind {
        fastest().kind()
    }

    fn schedule(&self, key: &Key) -> KeySchedule {
        fastest().schedule(key)
    }

    fn derive(&self, jobs: &[DeriveJob<'_>], keys: &mut [Key]) {
        fastest().derive(jobs, keys);
    }

    fn prepare(&self, key: &Key) -> PreparedKey {
        fastest().prepare(key)
    }

    fn seal(&self, jobs: &mut [SealJob<'_>]) {
        let mut ivs = self.ivs.lock().unwrap();
        for job in &*jobs {
            assert!(ivs.insert(job.iv), "{:?} twice", job.iv);
        }
        fastest().seal(jobs);
    }

    fn open(&self, jobs: &mut [OpenJob<'_>]) {
        self.look();
        fastest().open(jobs);
    }
}

/// An engine that goes on when this is dropped, also by a test that fails: its host waits for it.
struct StandsStill(&'static Watched);

impl Drop for StandsStill {
    fn drop(&mut self) {
        self.0.say(Next::Go);
    }
}

/// Hosts with as many queues as engines, of which `watched` encrypts for the server, and a scene
/// for each of the client's engines.
fn stage(engines: u32, watched: &'static Watched) -> (Hosts, Vec<Scene>) {
    let lab = LabConfig { queues: engines, ..LabConfig::default() };
    let setup = Setup {
        lab,
        engines: [Engines::Count(engines); 2],
        aead: [fastest(), watched],
        ..Setup::default()
    };
    let hosts = Hosts::in_lab(&setup);
    let scenes = scenes(&hosts);
    (hosts, scenes)
}

/// A scene for each engine of the client: a portal goes where most slots are free.
fn scenes(hosts: &Hosts) -> Vec<Scene> {
    let mut scenes: Vec<_> = hosts.client.engines().iter().map(|_| Scene::new(hosts)).collect();
    scenes.iter_mut().for_each(Scene::assert_works_again);
    scenes
}

fn all_ok(ended: &[OpStatus]) -> bool {
    ended.iter().all(|&status| status == OpStatus::Ok)
}

/// Takes the scene out whose engine of the server is gone or stands still: its ops end with
/// TIMEOUT, and those of the other go on.
fn take_scene_without_server(scenes: &mut Vec<Scene>) -> Scene {
    let ended: Vec<_> = scenes.iter_mut().map(Scene::load).collect();
    let of_other = ended.iter().position(|it| !all_ok(it)).unwrap();
    let lost = |status: &OpStatus| matches!(status, OpStatus::Timeout | OpStatus::DispatchTimeout);
    assert!(ended[of_other].iter().all(lost) && all_ok(&ended[1 - of_other]), "{ended:?}");
    scenes.remove(of_other)
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn an_engine_that_panics_under_load_ends_alone() {
    let watched = Watched::new();
    let (hosts, mut scenes) = stage(2, watched);
    let server = hosts.server();
    let mut own = [0, 1].map(|_| server.portal(1).unwrap());
    watched.say(Next::Panic);
    let issued: Vec<_> = scenes.iter_mut().map(Scene::issue_all).collect();
    wait_for("the engine's end", || (!server.engines()[1].is_up).then_some(()));
    for (scene, issued) in scenes.iter_mut().zip(issued) {
        scene.take_all(issued);
    }
    let mut other = take_scene_without_server(&mut scenes);
    let mut scene = scenes.remove(0);
    assert!(server.engines()[0].is_up && !server.metrics().engines_are_up());

    // Its own portals are told.
    let (addr, pid) = (hosts.server_addr, server.pid());
    let to_self = server.grant(&scene.region, addr, pid, OpType::Read).unwrap();
    let sink = server.register(64, Permissions::NONE).unwrap();
    let ended = own.each_mut().map(|portal| {
        portal.read(&to_self, 0, &sink, 0, 64).unwrap();
        portal.wait()
    });
    let ok = |it: &Result<_, _>| matches!(it, Ok(rma_xdp::Completion { status: OpStatus::Ok, .. }));
    let gone = |it: &Result<_, WaitError>| matches!(it, Err(WaitError::EngineGone));
    assert!(ended.iter().any(ok) && ended.iter().any(gone), "{ended:?}");

    // All else of the host goes on, and so does the client's other engine.
    server.deregister(&sink).unwrap();
    server.rekey(&scene.region, random_region_key().unwrap()).unwrap();
    scene.regrant(&hosts);
    scene.assert_works_again();
    assert!(other.load().iter().all(|&it| it != OpStatus::Ok));
    assert!(hosts.client.metrics().engines_are_up());
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn an_engine_that_stands_still_holds_up_what_concerns_all_and_nobody_elses_ops() {
    let watched = Watched::new();
    let (hosts, mut scenes) = stage(2, watched);
    let server = hosts.server();
    let stands = StandsStill(watched);
    watched.say(Next::Stand);
    let issued: Vec<_> = scenes.iter_mut().map(Scene::issue_all).collect();
    watched.wait(Next::Stands);
    for (scene, issued) in scenes.iter_mut().zip(issued) {
        scene.take_all(issued);
    }
    let mut other = take_scene_without_server(&mut scenes);
    let mut scene = scenes.remove(0);
    // Grants are made by the one that goes on, and a Rekey by an op is not acknowledged.
    assert_eq!(scene.rekey(&hosts, random_region_key().unwrap()), OpStatus::Timeout);
    // Its home goes on, and gives the Rekey up after its initiator has.
    wait_for("the end of the Rekey", || (server.metrics().nic.rekeys_held_up > 0).then_some(()));
    scene.regrant(&hosts);
    // What all engines must have waits for this one, and no longer.
    thread::scope(|scope| {
        let driver = scope.spawn(|| {
            let region = server.register(64, Permissions::READ)?;
            server.rekey(&region, random_region_key()?)?;
            server.deregister(&region)
        });
        for _ in 0..20 {
            assert!(all_ok(&scene.load()), "another engine's");
        }
        assert!(!driver.is_finished());
        drop(stands);
        driver.join().unwrap().unwrap();
    });
    scene.assert_works_again();
    other.assert_works_again();
    assert_eq!(other.rekey(&hosts, random_region_key().unwrap()), OpStatus::Ok);
    other.regrant(&hosts);
    other.assert_works_again();
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn hosts_that_are_restarted_with_another_number_of_engines_use_no_iv_twice() {
    let aead = [Watched::new(), Watched::new()];
    let mut lab = Lab::new(&LabConfig { queues: 2, ..LabConfig::default() }).unwrap();
    for engines in [[2, 2], [1, 2], [2, 1], [1, 1], [2, 2]] {
        let engines = engines.map(Engines::Count);
        let setup = Setup { engines, aead: [aead[0], aead[1]], ..Setup::default() };
        let hosts = Hosts::in_this(lab, &setup);
        let sealed = aead.map(|it| it.ivs.lock().unwrap().len());
        assert!(scenes(&hosts).iter_mut().all(|scene| all_ok(&scene.load())));
        for (aead, before) in aead.iter().zip(sealed) {
            assert!(aead.ivs.lock().unwrap().len() > before);
        }
        lab = hosts.lab.unwrap();
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn an_interface_that_comes_back_is_shared_out_anew_once_it_has_a_queue_for_each_engine() {
    let (hosts, mut scenes) = stage(4, Watched::new());
    let (lab, ends) = (hosts.lab.as_ref().unwrap(), [&hosts.client, hosts.server()]);
    let link = |queues| LabConfig { queues, ..LabConfig::default() };
    let delete = || {
        lab.a().ip(&["link", "del", "dev", Lab::INTERFACE]).unwrap();
        ends.iter().for_each(|host| wait_state(host, InterfaceState::Gone));
    };
    let issued: Vec<_> = scenes.iter_mut().map(Scene::issue_all).collect();
    delete();
    for (scene, issued) in scenes.iter_mut().zip(issued) {
        scene.take_all(issued);
    }
    lab.link(&link(2)).unwrap();
    for host in ends {
        // At first it may be that the new interface is not up.
        wait_for("the trouble", || {
            let trouble = host.interface().unwrap().trouble?;
            trouble.contains("each of 4 engines needs one of both").then_some(())
        });
    }
    delete();
    lab.link(&link(4)).unwrap();
    for host in ends {
        wait_attachments(host, 2);
        let device = host.interface().unwrap().device;
        assert!(device.contains("4 queue(s), 4 engines"), "{device}");
    }
    scenes.iter_mut().for_each(Scene::assert_works_again);
}

/// Sets how many queues of a kind an end has.
fn set_queues(netns: &Netns, kind: &str, count: u32) -> Result<String, LabError> {
    netns.exec(&["ethtool", "-L", Lab::INTERFACE, kind, &count.to_string()])
}

/// A lab whose server sends on four queues, and has so many to receive on; the other way round so
/// for the client. Both have room for four of each.
fn lab(client_sends: u32, server_receives: u32) -> Lab {
    let lab = Lab::new(&LabConfig { queues: 4, ..LabConfig::default() }).unwrap();
    set_queues(lab.a(), "tx", client_sends).unwrap();
    set_queues(lab.b(), "rx", server_receives).unwrap();
    lab
}

/// Set when this is dropped, also by a test that fails: whoever looks at it ends then.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn queues_that_are_added_under_load_are_shared_out_and_none_goes_that_an_engine_has() {
    let engines = [Engines::Count(2); 2];
    let hosts = Hosts::in_this(lab(2, 2), &Setup { engines, ..Setup::default() });
    let (lab, server) = (hosts.lab.as_ref().unwrap(), hosts.server());
    let mut scenes = scenes(&hosts);
    let changed = AtomicBool::new(false);
    thread::scope(|scope| {
        let (over, changed) = (Over(&changed), &changed);
        for scene in &mut scenes {
            scope.spawn(move || {
                while !changed.load(Relaxed) {
                    scene.load();
                }
            });
        }
        let polled = || server.interface().unwrap().queues_polled;
        assert!(set_queues(lab.b(), "rx", 1).is_err(), "the kernel keeps queues with sockets");
        assert_eq!(polled(), 2);
        set_queues(lab.b(), "rx", 4).unwrap();
        set_queues(lab.a(), "tx", 4).unwrap();
        wait_for("the queues", || (polled() == 4).then_some(()));
        drop(over);
    });
    scenes.iter_mut().for_each(Scene::assert_works_again);
    let device = server.interface().unwrap().device;
    assert!(device.contains("4 queue(s), 2 engines"), "{device}");
}

/// veth then delivers in generic mode alone, on queues that the sender does not know.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_client_that_sends_on_more_queues_than_the_server_has_is_served_and_that_is_told() {
    let engines = [4, 2].map(Engines::Count);
    let setup = Setup { engines, mode: Mode::Auto, ..Setup::default() };
    let hosts = Hosts::in_this(lab(4, 2), &setup);
    let server = hosts.server();
    let told = server.fallbacks();
    assert!(told.iter().any(|it| it.contains("generic XDP instead of native XDP")), "{told:?}");
    scenes(&hosts).iter_mut().for_each(|scene| assert!(all_ok(&scene.load())));
}
