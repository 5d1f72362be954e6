//! The networks of docs/NETWORKS.md that need modules of the kernel: their test runs in a machine
//! whose kernel has all of them.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::{
    Error,
    emulator::Emulator,
    error::{Setup, Trouble},
    hosts::{Host as _, NETWORKS},
    image,
    machine::{Machine, Model, Plan},
    make,
    matrix::FULL_6_12,
    network::Network,
    scenario,
};
use crate::{host, not_run::NotRun, test};

/// For titles and for `--only`.
pub(super) const NAME: &str = "6.12, networks";

/// The modules of all rows.
const MODULES: &[&str] =
    &["veth", "bridge", "8021q", "bonding", "vrf", "macvlan", "tun", "wireguard"];

const MTU: u32 = 1500;

/// Runs all rows in one machine.
pub(super) fn run(cache: &Path, not_run: &mut NotRun) -> Result<(), Error> {
    make(cache)?;
    let model = Model::VirtioNet;
    let kernel = FULL_6_12.get(cache)?;
    let (kernel, emulator) = match (kernel, Emulator::with(model.device(), cache)?) {
        (Ok(kernel), Ok(emulator)) => (kernel, emulator),
        (Err(why), _) | (_, Err(why)) => {
            not_run.add(format_args!("virtual machine with {NAME}: {why}"));
            return Ok(());
        }
    };
    let test = image::stripped(&program()?, cache)?;
    let name = test.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let ip = host::find_program("ip").expect("looked for above");
    let programs = [test, ip, image::busybox().expect("looked for above")];
    let addresses = scenario::addresses(scenario::A);
    let (queues, mtu, dma, modules) = (1, MTU, false, MODULES);
    let plan = Plan { name: "a", emulator, kernel, model, queues, mtu, dma, addresses, modules };
    let folder = cache.join("run");
    make(&folder)?;
    let network = Network::new(&[], &[(plan.tap(), plan.tap_queues())], MTU)?;
    let mut machine = Machine::start(&plan, &network, &programs, &folder).map_err(failed)?;
    machine.set_up(&plan).and_then(|()| go(&mut machine, &name)).map_err(|trouble| {
        print!("{}", machine.consoles());
        failed(trouble)
    })
}

fn failed(trouble: Trouble) -> Error {
    println!("  FAILED: {trouble}");
    Error::Failed { failed: 1, ran: 1 }
}

/// The test's program.
fn program() -> Result<PathBuf, Error> {
    #[derive(Deserialize)]
    struct Built {
        executable: Option<PathBuf>,
    }
    let build = || test::workspace_tests().args(["--test", "devices", "--no-run"]);
    build().run()?;
    // What is built already is named once more, for programs.
    let said = build().args(["--message-format=json"]).output().unwrap_or_default();
    let built = said.lines().filter_map(|line| serde_json::from_str::<Built>(line).ok());
    let missing = || Setup::NotInPackage { what: "the test".into(), folder: "tests".into() };
    // The programs of the package come with its tests.
    let is_test = |path: &PathBuf| path.to_string_lossy().contains("/devices-");
    Ok(built.filter_map(|it| it.executable).find(is_test).ok_or_else(missing)?)
}

/// Nothing may be left out there.
fn go(machine: &mut Machine, program: &str) -> Result<(), Trouble> {
    let program = image::program(program);
    let wanted = "networks::every --ignored --nocapture";
    let set = "env RMA_NETWORKS_WITH_MODULES=1";
    machine.run(&format!("start {NETWORKS} {set} {program} {wanted}"))?;
    let mut said = Vec::new();
    loop {
        let line = machine.line(NETWORKS)?;
        println!("  {line}");
        if let Some(status) = line.strip_prefix("exit-status ") {
            let is_whole = !said.iter().any(|line: &String| line.contains("NOT RUN: "));
            if status == "0" && is_whole {
                return Ok(());
            }
            let (host, status) = (machine.name(), status.to_owned());
            return Err(Trouble::Exited { host, program: NETWORKS, status, said: said.join("\n") });
        }
        said.push(line);
    }
}
