//! The layering: who must never import from whom, and which modules may stand in a circle.
//!
//! A row is refused whose modules are not there, and an exception that nobody takes: the table
//! cannot outlive what it speaks of.

use std::collections::BTreeSet;

use super::{
    crate_folders,
    modules::{Imports, is_in},
    root,
};

/// Modules that must not import from others, or from anything that stands in them.
struct Never {
    who: &'static str,
    from: &'static [&'static str],
    /// Those of them that may all the same.
    but: &'static [&'static str],
    why: &'static str,
}

const NEVERS: &[Never] = &[
    Never {
        who: "rma_core::nic",
        from: &[
            "rma_core::executor",
            "rma_core::cc",
            "rma_core::portal",
            "rma_core::engine",
            "rma_core::service",
            "rma_core::one_rma",
        ],
        but: &[],
        why: "the NIC stands for hardware: it takes commands and gives completions, whoever paces \
              and carries them",
    },
    Never {
        who: "rma_core::service",
        from: &["rma_core::one_rma", "rma_core::engine", "rma_core::portal", "rma_core::wire"],
        but: &[],
        why: "what an engine asks of a service is the same whatever it serves",
    },
    Never {
        who: "rma_core::wire",
        from: &["rma_core::nic", "rma_core::engine", "rma_core::portal", "rma_core::executor"],
        but: &[],
        why: "frames are read and written without knowing who does it",
    },
    Never {
        who: "rma_core::crypto",
        from: &["rma_core::nic", "rma_core::wire", "rma_core::engine", "rma_core::portal"],
        but: &[],
        why: "keys and IVs follow from what they bind, not from who uses them",
    },
    Never {
        who: "rma_core::seal",
        from: &[
            "rma_core::nic",
            "rma_core::wire",
            "rma_core::service",
            "rma_core::engine",
            "rma_core::portal",
        ],
        but: &[],
        why: "frames of all services are sealed and opened alike",
    },
    Never {
        who: "rma_core::portal",
        from: &["rma_core::nic", "rma_core::engine", "rma_core::executor"],
        but: &[],
        why: "a portal carries commands and completions, and may lie in another process",
    },
    Never {
        who: "rma_core::executor",
        from: &["rma_core::nic", "rma_core::engine"],
        but: &[],
        why: "software sees completions only",
    },
    Never {
        who: "rma_core::executor",
        from: &["rma_core::wire"],
        // Transfers are cut by what a frame carries.
        but: &["rma_core::executor::config"],
        why: "software sees completions, no frames",
    },
    Never {
        who: "rma_core::cc",
        from: &["rma_core::nic", "rma_core::executor", "rma_core::portal"],
        but: &[],
        why: "congestion control is told what happened, and says what follows",
    },
    Never {
        who: "rma_core::nic::initiator",
        from: &["rma_core::nic::responder"],
        but: &[],
        why: "the initiating side knows nothing of the responding one",
    },
    Never {
        who: "rma_core::nic::responder",
        from: &["rma_core::nic::initiator"],
        but: &[],
        why: "the responding side knows nothing of the initiating one",
    },
    Never {
        who: "rma_core::backend",
        from: &["rma_core::nic", "rma_core::engine", "rma_core::wire"],
        but: &[],
        why: "a device moves frames and never looks into them",
    },
    Never {
        who: "rma_app",
        from: &[
            "rma_xdp",
            "rma_core::nic",
            "rma_core::engine",
            "rma_core::backend",
            "rma_star::service",
        ],
        but: &[],
        why: "an application knows neither host nor device",
    },
    Never {
        who: "rma_channel",
        from: &["rma_xdp", "rma_app", "rma_core::nic", "rma_core::engine", "rma_core::backend"],
        but: &[],
        why: "a channel is the same over a host and in a simulation",
    },
    Never {
        who: "rma_channel::ring",
        from: &["rma_channel::link", "rma_core::executor"],
        but: &[],
        why: "a ring is memory, and knows no ops",
    },
    Never {
        who: "rma_star",
        from: &[
            "rma_xdp",
            "rma_app",
            "rma_channel",
            "rma_core::nic",
            "rma_core::one_rma",
            "rma_core::engine",
            "rma_core::executor",
        ],
        but: &[],
        why: "a service knows neither the others beside it nor the loop that drives it",
    },
    Never {
        who: "rma_keys",
        from: &[
            "rma_xdp",
            "rma_app",
            "rma_channel",
            "rma_star",
            "rma_core::nic",
            "rma_core::engine",
            "rma_core::portal",
            "rma_core::executor",
            "rma_core::wire",
        ],
        // The modules that go by the keys.
        but: &["rma_keys::keyed", "rma_keys::replicas"],
        why: "keys are given out of band: whoever gives them knows neither NIC nor host",
    },
    Never {
        who: "rma_keys::message",
        from: &[
            "rma_keys::policy",
            "rma_keys::catalog",
            "rma_keys::service",
            "rma_keys::audit",
            "rma_keys::peer",
        ],
        but: &[],
        why: "what is said does not depend on who decides about it",
    },
    Never {
        who: "rma_keys::policy",
        from: &["rma_keys::catalog", "rma_keys::service", "rma_keys::message", "rma_keys::secret"],
        but: &[],
        why: "who may have a key is decided without the key",
    },
    Never {
        who: "rma_keys::catalog",
        from: &["rma_keys::policy", "rma_keys::service", "rma_keys::message", "rma_keys::identity"],
        but: &[],
        why: "a region's keys do not depend on who may have them",
    },
    Never {
        who: "rma_xdp::device::udp",
        from: &["rma_xdp::device::xdp"],
        but: &[],
        why: "UDP sockets and AF_XDP know nothing of each other",
    },
    Never {
        who: "rma_xdp::device::xdp",
        from: &["rma_xdp::device::udp"],
        but: &[],
        why: "AF_XDP and UDP sockets know nothing of each other",
    },
    Never {
        who: "rma_xdp::device",
        from: &["rma_xdp::host", "rma_xdp::driver", "rma_xdp::engine"],
        but: &[],
        why: "a device does not know who uses it",
    },
    Never { who: "rma_shm", from: &["rma_core"], but: &[], why: "shared memory knows no protocol" },
    Never {
        who: "rma_crypto",
        from: &["rma_core"],
        but: &[],
        why: "sealing batches knows no protocol",
    },
    Never {
        who: "rma_sim",
        from: &["rma_xdp", "rma_app", "rma_lab"],
        but: &[],
        why: "a simulation knows no operating system",
    },
    Never {
        who: "rma_sim::net",
        from: &["rma_sim::check", "rma_sim::hosts", "rma_sim::load", "rma_sim::flows"],
        but: &[],
        why: "the network does not know who watches it or who uses it",
    },
    Never {
        who: "rma_sim::check",
        from: &["rma_sim::hosts", "rma_sim::load", "rma_sim::flows"],
        but: &[],
        why: "what must hold does not depend on what is tried",
    },
    Never {
        who: "rma_sim::hosts",
        from: &["rma_sim::load", "rma_sim::flows"],
        but: &[],
        why: "hosts do not know what uses them",
    },
    Never {
        who: "rma_sim::load",
        from: &["rma_sim::flows"],
        but: &[],
        why: "the swarm takes nothing from the figures",
    },
    Never {
        who: "rma_lab",
        from: &["rma_xdp", "rma_app", "rma_sim", "rma_bench", "rma_figures", "rma_tests"],
        but: &[],
        why: "fixtures stand below all whose tests use them",
    },
    Never {
        who: "rma_fuzz_bodies",
        from: &["rma_xdp", "rma_app"],
        but: &[],
        why: "what is fuzzed needs no operating system",
    },
    Never { who: "rma_tests", from: &["rma_bench"], but: &[], why: "a test is no benchmark" },
    Never { who: "rma_figures", from: &["rma_tests"], but: &[], why: "a benchmark is no test" },
    Never {
        who: "rma_bench",
        from: &["rma_figures", "rma_sim", "rma_tests"],
        but: &[],
        why: "operators run it: what measures the project and the papers stands on it",
    },
];

/// A module that is one thing with those that stand in it, so that they may import from each other.
struct Room {
    name: &'static str,
    /// Whether those that stand in it may do so as well, without the room itself.
    siblings: bool,
    why: &'static str,
}

const ROOMS: &[Room] = &[
    Room {
        name: "rma_core::cc",
        siblings: false,
        why: "the controller is an enum of its algorithms, which speak in its signals",
    },
    Room {
        name: "rma_core::command",
        siblings: false,
        why: "how commands and completions are encoded stands beside what they are",
    },
    Room {
        name: "rma_core::executor",
        siblings: true,
        why: "a call holds what is left of its publishing op, which moves its call on",
    },
    Room {
        name: "rma_core::nic",
        siblings: false,
        why: "one `impl Nic` in several files, which lends its parts to those that stand in it",
    },
    Room {
        name: "rma_core::nic::initiator",
        siblings: true,
        why: "a slot knows the state of its mutation, and a mutation its slot",
    },
    Room {
        name: "rma_core::nic::responder",
        siblings: true,
        why: "who is not admitted gets a notice, and notices tell of what was not admitted",
    },
    Room {
        name: "rma_core::portal",
        siblings: false,
        why: "a portal's two ends stand in the memory that both are made of",
    },
    Room {
        name: "rma_core::receive_queue",
        siblings: false,
        why: "a queue's two ends stand in the memory that both are made of",
    },
    Room {
        name: "rma_core::service",
        siblings: false,
        why: "two services side by side are a service",
    },
    Room {
        name: "rma_core::wire",
        siblings: false,
        why: "the table of frames names every type, and each type begins with the common header",
    },
    Room {
        name: "rma_crypto",
        siblings: true,
        why: "one idea in ten files: a key knows the forms that each provider wants it in",
    },
    Room {
        name: "rma_shm",
        siblings: true,
        why: "errors name what regions and mappings were asked for",
    },
    Room {
        name: "rma_keys::io::key_cache",
        siblings: false,
        why: "a region is of the cache that gave it, and goes back to it",
    },
    Room {
        name: "rma_keys::io::keeper",
        siblings: false,
        why: "a keeper's regions ask the host that it names, and its loop and thread turn it",
    },
    Room {
        name: "rma_xdp::capture",
        siblings: false,
        why: "what serves captures by a socket stands in the module that has them",
    },
    Room {
        name: "rma_xdp::metrics",
        siblings: false,
        why: "what judges and serves metrics stands in the module that has them",
    },
    Room {
        name: "rma_bench::rotation",
        siblings: false,
        why: "a run of rotations is an `impl` of its stage in a file of its own",
    },
    Room {
        name: "rma_sim::check::invariant",
        siblings: true,
        why: "one `impl Checker` in several files, over one state",
    },
    Room {
        name: "rma_sim::flows",
        siblings: false,
        why: "the experiments' round trip and rate are said beside what they are made of",
    },
    Room {
        name: "rma_sim::load::workload",
        siblings: false,
        why: "hosts and their plans are of the world that they are drawn for",
    },
    Room {
        name: "rma_tests::hostile_wire",
        siblings: true,
        why: "one attacked wire: who forges, who forwards, and between which ends",
    },
    Room {
        name: "rma_fuzz_bodies::nic",
        siblings: true,
        why: "one world in several files: its hosts, and what recorded ops are on at them",
    },
    Room {
        name: "rma_fuzz_bodies::portals",
        siblings: false,
        why: "an honest and a hostile application of one engine",
    },
    Room {
        name: "xtask::vms",
        siblings: true,
        why: "a pair of machines is one cell of the matrix, and a scenario says which it needs",
    },
];

/// Returns the faults of `imports`, by these tables.
fn faults(imports: &Imports, nevers: &[Never], rooms: &[Room]) -> Vec<String> {
    let arrows = imports.arrows();
    let is_there = |room: &str| arrows.keys().any(|it| is_in(it, room));
    let mut faults = Vec::new();
    for Never { who, from, but, why } in nevers {
        for room in from.iter().chain(*but).chain([who]).filter(|room| !is_there(room)) {
            faults.push(format!("{who} never imports from {from:?}: there is no {room}"));
        }
        for (module, to) in arrows.iter().filter(|(module, _)| is_in(module, who)) {
            let refused: Vec<_> =
                to.iter().filter(|to| from.iter().any(|room| is_in(to, room))).collect();
            if but.contains(module) {
                if refused.is_empty() {
                    faults.push(format!("{module} may import from {from:?}, and does not"));
                }
                continue;
            }
            faults.extend(refused.iter().map(|to| format!("{module} imports from {to}: {why}")));
        }
    }
    let circles = [(true, imports.circles(true)), (false, imports.circles(false))];
    let may = |room: &Room, up: bool, circle: &BTreeSet<&str>| {
        (up || room.siblings) && circle.iter().all(|module| is_in(module, room.name))
    };
    for (up, circle) in circles.iter().flat_map(|(up, all)| all.iter().map(|it| (*up, it))) {
        if !rooms.iter().any(|room| may(room, up, circle)) {
            let modules: Vec<&str> = circle.iter().copied().collect();
            faults.push(format!("these import from each other: {}", modules.join(", ")));
        }
    }
    for room in rooms {
        let (_, all) = &circles[usize::from(room.siblings)];
        if !all.iter().any(|circle| may(room, !room.siblings, circle)) {
            let Room { name, why, .. } = room;
            faults.push(format!("{name} may be a circle ({why}), and is none"));
        }
    }
    faults
}

fn workspace() -> Imports {
    let mut imports = Imports::default();
    for folder in crate_folders() {
        let name = match folder.rsplit('/').next().unwrap() {
            name @ ("bench" | "tests") => format!("rma-{name}"),
            name => name.to_owned(),
        };
        imports.add_crate(&name.replace('-', "_"), &root().join(folder).join("src"));
    }
    imports
}

#[test]
fn nobody_imports_from_whom_he_must_not_know() {
    let faults = faults(&workspace(), NEVERS, ROOMS);
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

const MADE_UP: &[Never] =
    &[Never { who: "a::low", from: &["a::high"], but: &["a::low::y"], why: "low is low" }];

fn made_up(modules: &[(&str, &str)]) -> Imports {
    let mut imports = Imports::default();
    modules.iter().for_each(|(module, text)| imports.add(module, text));
    imports
}

#[test]
fn an_import_that_must_never_be_is_a_fault_in_the_room_and_in_what_stands_in_it() {
    let with = |text| {
        let high = "use crate::high;";
        made_up(&[
            ("a", ""),
            ("a::low", ""),
            ("a::low::x", text),
            ("a::low::y", high),
            ("a::high", ""),
        ])
    };
    assert!(faults(&with("use crate::low::Thing;"), MADE_UP, &[]).is_empty());
    let found = faults(&with("use crate::{high::Thing, low::Thing};"), MADE_UP, &[]);
    assert_eq!(found, ["a::low::x imports from a::high: low is low"]);
}

#[test]
fn an_exception_that_nobody_takes_is_a_fault() {
    let low = made_up(&[("a::low", ""), ("a::low::y", "use crate::high;"), ("a::high", "")]);
    assert!(faults(&low, MADE_UP, &[]).is_empty());
    let low = made_up(&[("a::low", ""), ("a::low::y", ""), ("a::high", "")]);
    let found = faults(&low, MADE_UP, &[]);
    assert_eq!(found, ["a::low::y may import from [\"a::high\"], and does not"]);
}

#[test]
fn an_executors_settings_may_know_how_long_frames_are_and_no_nic() {
    let found = |text| {
        let modules = ["nic", "engine", "wire", "executor"].map(|it| format!("rma_core::{it}"));
        let mut all: Vec<(&str, &str)> = modules.iter().map(|it| (it.as_str(), "")).collect();
        all.extend([("rma_core", ""), ("rma_core::executor::config", text)]);
        let faults = faults(&made_up(&all), NEVERS, &[]);
        faults.into_iter().filter(|it| it.contains("config imports from")).collect::<Vec<_>>()
    };
    assert_eq!(found("use crate::wire::read::RESPONSE_OVERHEAD;"), [""; 0]);
    assert_eq!(found("use crate::nic::NicConfigBuilder;").len(), 1);
}

#[test]
fn a_row_about_modules_that_are_not_there_is_a_fault() {
    let gone = [Never { who: "a::low", from: &["a::gone"], but: &[], why: "it was" }];
    let found = faults(&made_up(&[("a", ""), ("a::low", ""), ("a::gone_too", "")]), &gone, &[]);
    assert!(found.len() == 1 && found[0].ends_with("there is no a::gone"), "{found:?}");
}

#[test]
fn a_circle_is_a_fault_unless_its_room_is_listed_and_so_is_a_room_without_a_circle() {
    let room = |name, siblings| [Room { name, siblings, why: "one idea" }];
    let round = made_up(&[
        ("a", ""),
        ("a::b", ""),
        ("a::b::c", "use super::d;"),
        ("a::b::d", "use super::c;"),
    ]);
    assert_eq!(faults(&round, &[], &[]).len(), 2);
    assert!(faults(&round, &[], &room("a::b", true)).is_empty());
    assert_eq!(faults(&round, &[], &room("a::b::c", true)).len(), 3);
    assert!(!faults(&round, &[], &room("a::b", false)).is_empty());
    let with_parent = made_up(&[("a", ""), ("a::b", "use c::C;"), ("a::b::c", "use super::B;")]);
    assert_eq!(faults(&with_parent, &[], &[]), ["these import from each other: a::b, a::b::c"]);
    assert!(faults(&with_parent, &[], &room("a::b", false)).is_empty());
    assert_eq!(faults(&with_parent, &[], &room("a::b", true)).len(), 1, "too much is allowed");
    let straight = made_up(&[("a", ""), ("a::b", "use c::C;"), ("a::b::c", "")]);
    assert!(faults(&straight, &[], &[]).is_empty());
    assert_eq!(faults(&straight, &[], &room("a::b", false)).len(), 1);
}
