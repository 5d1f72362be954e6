//! A Rekey of a remote rotator of which one of the four hops is lost (1RMA §5.2): nobody knows
//! whether it took effect. Until that is known, both keys can be fetched, and one of them works;
//! then the catalog has the right one, and the other works no more.
//!
//! The shipped NICs, rotation and service, on a network where each hop takes a microsecond.

use core::time::Duration;
use std::sync::Arc;

use rma_core::{
    addr::Pid,
    crypto::KeyBinding,
    grant::Grant,
    op::{OpStatus, OpType},
    portal::CommandPortal,
    region::{Permissions, RegisteredRegion},
    time::Instant,
};
use rma_keys::{
    catalog::{EpochKey, Region as Published},
    epoch::Life,
    message::{
        reply::{Answer, EpochKeys, Reply},
        request::{Request, Wanted},
    },
    ops::OpSet,
    peer::{Peer, Serial},
    policy::Policy,
    rotation::{Plan, Rotation, Schedule, Todo, Turn, Way},
    secret::RegionSecret,
    service::{Service, ServiceConfig},
    time::{Now, WallTime},
};
use rma_shm::Region;
use rma_sim::{
    hosts::{network::Network, options::NetworkOptions},
    net::{frame::NodeId, link::Faults},
    prng::Chance,
};

const OWNER: NodeId = NodeId(0);
const ROTATOR: NodeId = NodeId(1);
const CLIENT: NodeId = NodeId(2);
const PID: Pid = Pid(7);
const LEN: u64 = 64;
const HOP: Duration = Duration::from_micros(1);

/// An end that issues ops and waits for each.
struct End {
    node: NodeId,
    portal: CommandPortal,
    local: RegisteredRegion,
}

struct World {
    network: Network,
    service: Service<Policy>,
    rotation: Rotation,
    rotator: End,
    client: End,
    drawn: u8,
}

fn wall(boot: Instant) -> Now {
    Now { boot, wall: WallTime::from_unix_millis(0) }
}

impl End {
    fn new(network: &mut Network, node: NodeId) -> Self {
        let portal = network.portal(node, 4, PID);
        let memory = Arc::new(Region::new(LEN as usize).expect("short"));
        let local = network.register((node, PID), memory, Permissions::NONE, None);
        Self { node, portal, local }
    }

    /// Waits for what has been issued; its frame of hop `lost` is.
    fn ends(&mut self, network: &mut Network, lost: Option<u32>) -> OpStatus {
        let issued = network.now();
        // Hop 1 is sent at once, and each other one when the one before has come.
        let cut_at = lost.map(|hop| issued + HOP * (hop - 1));
        let lose = |network: &mut Network, at: Instant| {
            let loss = if cut_at == Some(at) { Chance::ppm(1_000_000) } else { Chance::ppm(0) };
            network.set_faults(Faults { loss, ..Faults::default() });
        };
        lose(network, issued);
        assert_eq!(network.take_commands(self.node), 1);
        loop {
            if let Some(completion) = self.portal.poll() {
                network.set_faults(Faults::default());
                return completion.status;
            }
            let next = network.next_at().expect("an op ends");
            lose(network, next);
            network.step();
        }
    }

    fn read(&mut self, network: &mut Network, grant: &Grant, lost: Option<u32>) -> OpStatus {
        self.portal.read(grant, 0, &self.local, 0, 8).expect("it can be right");
        self.ends(network, lost)
    }
}

impl World {
    fn new() -> Self {
        let mut network = Network::new(NetworkOptions::exact(3));
        let secret = RegionSecret::new(&mut [1; 16]);
        let memory = Arc::new(Region::new(LEN as usize).expect("short"));
        let permissions = Permissions::READ | Permissions::REKEY;
        let key = secret.region_key();
        let region = network.register_under(&key, (OWNER, PID), memory, permissions, None);
        let allow =
            "[[allow]]\nregion = \"kv\"\nidentity = \"spiffe://a/client\"\nops = [\"read\"]";
        let policy = Policy::parse(allow).expect("a policy");
        let mut service = Service::new(Life([1; 8]), policy, ServiceConfig::default());
        let plan = Plan { way: Way::Rekey, schedule: Schedule::default(), seed: 1 };
        let now = wall(network.local_now(ROTATOR));
        let mut fresh = || unreachable!("the first key is given");
        let mut turn = Turn { now, service: &mut service, fresh: &mut fresh, events: Vec::new() };
        let responders = network.address(OWNER).into();
        let published = Published { responders, id: region.id(), len: LEN };
        let name = "kv".parse().expect("a name");
        let rotation =
            Rotation::publish(&mut turn, name, published, &secret, plan).expect("it makes sense");
        let [rotator, client] = [ROTATOR, CLIENT].map(|node| End::new(&mut network, node));
        Self { network, service, rotation, rotator, client, drawn: 1 }
    }

    fn turn(&mut self, act: impl FnOnce(&mut Rotation, &mut Turn<'_, Policy>)) {
        let Self { network, service, rotation, drawn, .. } = self;
        let now = wall(network.local_now(ROTATOR));
        let mut fresh = || {
            *drawn += 1;
            RegionSecret::new(&mut [*drawn; 16])
        };
        let mut turn = Turn { now, service, fresh: &mut fresh, events: Vec::new() };
        act(rotation, &mut turn);
    }

    /// Makes a grant of the rotator itself under a key of the catalog.
    fn rotators(&self, key: &EpochKey, op_type: OpType) -> Grant {
        let entry = self.service.catalog().find(self.rotation.name()).expect("published");
        let binding = KeyBinding {
            initiator: self.network.address(ROTATOR),
            responder: self.network.address(OWNER),
            pid: PID,
            op_type,
        };
        let KeyBinding { initiator, responder, pid, op_type } = binding;
        let (region, region_len) = (entry.region().id, entry.region().len);
        let key = key.derive(&binding).derived_key();
        Grant { responder, region, region_len, initiator, pid, op_type, key }
    }

    /// Does what there is to do, waiting if need be; its frame of hop `lost` is. Tells what it was,
    /// and how it ended.
    fn drive(&mut self, lost: Option<u32>) -> (&'static str, OpStatus) {
        for _ in 0..100 {
            let now = self.network.local_now(ROTATOR);
            match self.rotation.poll_todo(now, &self.service) {
                Todo::Wait(until) => {
                    let until = self.network.when(ROTATOR, until.expect("it goes on"));
                    while self.network.next_at().is_some_and(|at| at <= until) {
                        self.network.step();
                    }
                    self.network.advance_to(until.max(self.network.now()));
                    self.turn(|rotation, turn| rotation.handle_timeout(turn).expect("published"));
                }
                Todo::Rekey { to, secret, .. } => {
                    let key = secret.region_key();
                    let entry = self.service.catalog().find(self.rotation.name());
                    let present = entry.expect("published").present();
                    let grant = self.rotators(present, OpType::Rekey);
                    self.rotator.portal.rekey(&grant, key).expect("it can be right");
                    let status = self.rotator.ends(&mut self.network, lost);
                    self.turn(|rotation, turn| {
                        rotation.handle_rekey(turn, to, status).expect("published");
                    });
                    return ("Rekey", status);
                }
                Todo::Probe { under } => {
                    let entry = self.service.catalog().find(self.rotation.name());
                    let next = entry.expect("published").next().expect("it is not known");
                    assert_eq!(next.epoch(), under);
                    let grant = self.rotators(next, OpType::Read);
                    let status = self.rotator.read(&mut self.network, &grant, lost);
                    self.turn(|rotation, turn| {
                        rotation.handle_probe(turn, under, status).expect("published");
                    });
                    return ("probe", status);
                }
            }
        }
        panic!("nothing to do but to wait");
    }

    /// Returns the statuses of a new client under each of the keys that it is given.
    fn newcomer(&mut self) -> Vec<OpStatus> {
        let address = self.network.address(CLIENT);
        let peer = Peer {
            identity: "spiffe://a/client".parse().expect("an identity"),
            serial: Serial::new(&[1]).expect("short"),
            not_after: WallTime::from_unix_millis(i64::MAX),
            address,
        };
        let ops = OpSet::NONE.with(OpType::Read);
        let wanted = Wanted { name: self.rotation.name().clone(), ops, have: None };
        let request = Request { initiators: address.into(), pid: PID, regions: vec![wanted] };
        let now = wall(self.network.local_now(ROTATOR));
        let Reply::Answers(mut answers) = self.service.answer(now, &peer, &request).reply else {
            panic!("it was looked at")
        };
        let Answer::Granted(granted) = answers.remove(0) else { panic!("it is allowed") };
        let grants = |keys: &EpochKeys| granted.grants(keys, address.into(), PID).next();
        let keys = [Some(&granted.present), granted.next.as_ref()].into_iter().flatten();
        let grants: Vec<Grant> = keys.filter_map(grants).collect();
        grants.iter().map(|it| self.client.read(&mut self.network, it, None)).collect()
    }
}

use OpStatus::{Ok as Done, RemoteAuthenticationFailure as Refused, Timeout};

//= 1rma#5.2-rekey
//= type=test
#[test]
fn whichever_hop_of_a_rekey_is_lost_both_keys_stay_until_it_is_known_which_one_holds() {
    for hop in 1..=4 {
        // The probe that finds it out may be lost as well, there or back.
        for lost_probe in [None, Some(1), Some(2)] {
            let what = format!("hop {hop} of the Rekey, {lost_probe:?} of the probe");
            let mut world = World::new();
            assert_eq!(world.newcomer(), [Done], "{what}");
            world.turn(|rotation, turn| rotation.rotate(turn).expect("published"));
            assert_eq!(world.newcomer(), [Done, Refused], "{what}: announced");
            assert_eq!(world.drive(Some(hop)), ("Rekey", Timeout), "{what}");
            // Only of the last hop the loss comes too late.
            let unknown = if hop == 4 { [Refused, Done] } else { [Done, Refused] };
            assert_eq!(world.newcomer(), unknown, "{what}");
            if lost_probe.is_some() {
                assert_eq!(world.drive(lost_probe), ("probe", Timeout), "{what}");
                assert_eq!(world.newcomer(), unknown, "{what}");
            }
            if hop == 4 {
                assert_eq!(world.drive(None), ("probe", Done), "{what}");
            } else {
                assert_eq!(world.drive(None), ("probe", Refused), "{what}");
                assert_eq!(world.newcomer(), unknown, "{what}");
                assert_eq!(world.drive(None), ("Rekey", Done), "{what}");
            }
            assert_eq!(world.newcomer(), [Done], "{what}: the one that holds, and no other");
            assert_eq!(world.rotation.counters().rotated, 1, "{what}");
            assert_eq!(world.service.catalog().names().count(), 1);
        }
    }
}

#[test]
fn a_withdrawal_while_a_rekey_is_unknown_ends_with_a_key_that_nobody_was_given() {
    for hop in 1..=4 {
        let mut world = World::new();
        world.turn(|rotation, turn| rotation.rotate(turn).expect("published"));
        assert_eq!(world.drive(Some(hop)), ("Rekey", Timeout));
        world.turn(|rotation, turn| rotation.withdraw(turn).expect("published"));
        let given = world.newcomer().len();
        assert_eq!(given, 2, "one of them holds, and nobody knows which");
        let mut steps = 0;
        while world.newcomer().len() > 1 {
            world.drive(None);
            steps += 1;
            assert!(steps < 10, "hop {hop}");
        }
        assert_eq!(world.newcomer(), [Done]);
        let entry = world.service.catalog().find(world.rotation.name()).expect("published");
        assert_eq!(entry.present().epoch().number, 3, "neither the present one nor the announced");
    }
}
