//! `cargo xtask vms`: two virtual machines, with kernels and NICs of their own, that read and write
//! each other and a UDP host.
//!
//! The other tests run on one kernel, over veth. Here Debian's kernels boot in QEMU, without KVM,
//! from an initramfs made on the fly, and `rma-bench` runs in them. Nothing is installed but QEMU
//! and busybox; what is downloaded or made lies below `target/vms`. Frames go over taps and a
//! bridge in a network namespace of their own.
//!
//! Nobody's time is judged: two machines are emulated on as many cores as there are.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use clap::Args;

use crate::{cargo, not_run::NotRun, requirements, test};

mod emulator;
mod error;
mod hosts;
mod image;
mod kernels;
mod lines;
mod machine;
mod matrix;
mod network;
mod networks;
mod packages;
mod scenario;

use emulator::{Emulator, QEMU};
pub(crate) use error::Error;
use error::{Setup, Trouble};
use hosts::Here;
use kernels::{Kernel, Series};
use machine::{Machine, Plan};
use matrix::{Expected, Outcome, ROWS, Row};
use network::Network;

/// The machines to run.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Options {
    /// Run one pair of each kernel, and one on veth, as CI does.
    #[arg(long)]
    short: bool,
    /// Run only the rows whose name contains this text: `6.12`, `e1000e`, `2 queue`.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Write the table to docs/KERNELS.md.
    #[arg(long, conflicts_with_all = ["short", "only"])]
    write: bool,
}

impl Options {
    /// One pair of each kernel, and one on veth.
    pub(crate) fn short() -> Self {
        Self { short: true, ..Self::default() }
    }
}

/// The page that holds the table.
const PAGE: &str = "docs/KERNELS.md";

/// Runs the rows, for somebody who wants just that: that none can be run is an error.
pub(crate) fn run_alone(options: &Options, not_run: &mut NotRun) -> Result<(), Error> {
    if run(options, not_run)? == 0 { Err(Error::NothingRan) } else { Ok(()) }
}

/// Runs the rows, all of them even if one fails, and ends with their table. What cannot be had here
/// goes to `not_run`. Gives how many rows ran.
pub(crate) fn run(options: &Options, not_run: &mut NotRun) -> Result<usize, Error> {
    let wanted = |row: &&Row| {
        (!options.short || row.short)
            && options.only.as_ref().is_none_or(|part| row.name().contains(part))
    };
    let rows: Vec<Row> = ROWS.iter().filter(wanted).copied().collect();
    if let Err(why) = prepare()? {
        not_run.add(format_args!("virtual machines: {why}"));
        return Ok(0);
    }
    let with_networks = options.only.as_ref().is_none_or(|part| networks::NAME.contains(part));
    if with_networks {
        println!("\n-- {}", networks::NAME);
        networks::run(&cargo::target_folder().join("vms"), not_run)?;
    }
    if rows.is_empty() {
        return Ok(usize::from(with_networks));
    }
    let workshop = Workshop::open()?;
    let mut all = Vec::new();
    for row in rows {
        println!("\n-- {}", row.name());
        let (releases, outcome) = workshop.run(&row)?;
        match &outcome {
            Outcome::Right(_) => println!("  all bytes right"),
            Outcome::Refused(message) => println!("  {message}"),
            Outcome::Failed(why) => println!("  FAILED: {why}"),
            Outcome::NotRun(why) => {
                not_run.add(format_args!("virtual machines with {}: {why}", row.name()));
            }
        }
        all.push((row, releases, outcome));
    }
    let table = matrix::table(&all);
    println!("\n== virtual machines ==\n{table}");
    let failed = all.iter().filter(|(.., outcome)| matches!(outcome, Outcome::Failed(_))).count();
    let left_out = all.iter().filter(|(.., outcome)| matches!(outcome, Outcome::NotRun(_))).count();
    let ran = all.len() - left_out;
    if failed > 0 {
        return Err(Error::Failed { failed, ran });
    }
    if options.write {
        match left_out {
            0 => write_page(&table)?,
            _ => println!("{PAGE} is as it was: {left_out} of its rows were not run"),
        }
    }
    Ok(ran)
}

/// Sees to it that machines can be made here, or says why they cannot.
fn prepare() -> Result<Result<(), String>, Error> {
    if !cfg!(target_arch = "x86_64") {
        return Ok(Err(
            "they are x86-64, and this machine builds programs for another processor".into()
        ));
    }
    // Some rows run tests.
    requirements::to_test()?;
    if let Err(lacks) = requirements::for_the_lab()? {
        return Ok(Err(lacks.into_error("vms").to_string()));
    }
    if !Path::new("/dev/net/tun").exists() {
        return Ok(Err("there is no /dev/net/tun for their taps: `modprobe tun`".into()));
    }
    Ok(requirements::for_machines().map_err(|error| error.to_string()))
}

/// The common needs of all rows.
struct Workshop {
    cache: PathBuf,
    rma_bench: PathBuf,
    /// The programs that run in machines.
    programs: Vec<PathBuf>,
}

impl Workshop {
    fn open() -> Result<Self, Error> {
        // As its own tests have built it: nothing is measured here, and a release takes minutes.
        test::workspace_tests().args(["--test", "commands", "--no-run"]).run()?;
        let target = cargo::target_folder();
        let (cache, rma_bench) = (target.join("vms"), target.join("debug/rma-bench"));
        make(&cache)?;
        let busybox = image::busybox().expect("looked for above");
        let programs = vec![image::stripped(&rma_bench, &cache)?, busybox];
        Ok(Self { cache, rma_bench, programs })
    }

    /// Runs one row; the releases of its kernels come with what became of it.
    fn run(&self, row: &Row) -> Result<([String; 2], Outcome), Error> {
        let [a, b] = row.kernels.map(|series: Series| series.get(&self.cache));
        let emulator = Emulator::with(row.model.device(), &self.cache)?;
        let (kernels, emulator) = match (a?, b?, emulator) {
            (Ok(a), Ok(b), Ok(emulator)) => ([a, b], emulator),
            (Err(why), ..) | (_, Err(why), _) | (.., Err(why)) => {
                let versions = row.kernels.map(|series| series.version.to_owned());
                return Ok((versions, Outcome::NotRun(why)));
            }
        };
        let releases = [0, 1].map(|at| kernels[at].release.clone());
        let outcome = self.run_with(row, kernels, &emulator);
        let outcome = outcome.unwrap_or_else(|why| Outcome::Failed(why.to_string()));
        Ok((releases, outcome))
    }

    fn run_with(
        &self,
        row: &Row,
        [a, b]: [Kernel; 2],
        emulator: &Emulator,
    ) -> Result<Outcome, Trouble> {
        let folder = self.cache.join("run");
        // Of the last row.
        let _ = fs::remove_dir_all(&folder);
        make(&folder)?;
        let plan = |name, kernel, host| {
            let &Row { model, queues, mtu, dma, .. } = row;
            let (addresses, emulator) = (scenario::addresses(host), emulator.clone());
            Plan { name, emulator, kernel, model, queues, mtu, dma, addresses, modules: &[] }
        };
        let [a, b] = [plan("a", a, scenario::A), plan("b", b, scenario::B)];
        let addresses = scenario::addresses(scenario::HERE);
        let taps = [&a, &b].map(|plan| (plan.tap(), plan.tap_queues()));
        let network = Network::new(&[&addresses[0], &addresses[1]], &taps, row.mtu)?;
        let mut here = Here::new(&network, &self.rma_bench, &folder);
        let mut machines = [
            Machine::start(&a, &network, &self.programs, &folder)?,
            Machine::start(&b, &network, &self.programs, &folder)?,
        ];
        let outcome = Self::go_through(row, [&a, &b], &mut machines, &mut here, &network);
        if outcome.is_err() {
            print!("{}", here.consoles());
            for machine in &machines {
                print!("{}", machine.consoles());
            }
        }
        outcome
    }

    fn go_through(
        row: &Row,
        plans: [&Plan; 2],
        machines: &mut [Machine; 2],
        here: &mut Here,
        network: &Network,
    ) -> Result<Outcome, Trouble> {
        for (machine, plan) in machines.iter_mut().zip(plans) {
            machine.set_up(plan)?;
        }
        let [a, b] = machines;
        match row.expected {
            Expected::Native | Expected::ZeroCopy | Expected::Generic => {
                let shown = scenario::run(a, b, here, network, row)?;
                Ok(Outcome::Right(Box::new(shown)))
            }
            Expected::Refused(part) => {
                scenario::refused(b, row, part)?;
                scenario::refused(a, row, part).map(Outcome::Refused)
            }
        }
    }
}

fn make(folder: &Path) -> Result<(), Setup> {
    fs::create_dir_all(folder).map_err(|source| Setup::File {
        doing: "making",
        path: folder.to_owned(),
        source,
    })
}

/// The line of the page after which everything is written anew.
const MARK: &str = "<!-- What follows is written by `cargo xtask vms --write`. -->\n";

/// Puts the table at the end of the page, with what it was seen on.
fn write_page(table: &str) -> Result<(), Error> {
    let path = cargo::workspace().join(PAGE);
    let page = fs::read_to_string(&path).map_err(kernels::file("reading", &path))?;
    let kept = page.split_once(MARK).map_or(&*page, |(kept, _)| kept);
    let release = Path::new("/proc/sys/kernel/osrelease");
    let release = fs::read_to_string(release).map_err(kernels::file("reading", release))?;
    let linux = release.split(['-', '\n']).next().unwrap_or_default();
    let qemu = kernels::run(Command::new(QEMU).arg("--version"))?;
    let qemu = String::from_utf8_lossy(&qemu);
    let qemu = qemu.lines().next().unwrap_or_default();
    let page = format!("{kept}{MARK}\n{qemu}, and the UDP host on Linux {linux}:\n\n{table}");
    fs::write(&path, page).map_err(kernels::file("writing", &path))?;
    println!("written to {PAGE}");
    Ok(())
}
