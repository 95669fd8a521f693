//! What the programs are made of: licences, banned crates and sources, as `.deny.toml` allows them.
//!
//! cargo-deny checks the same where it is installed; this needs Cargo alone.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test may fail by panicking, its helpers too"
)]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde::Deserialize;

/// Where every crate comes from that is not part of this workspace.
const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// The rules, as far as this test knows them.
#[derive(Deserialize)]
struct Rules {
    licenses: Licenses,
    bans: Bans,
}

#[derive(Deserialize)]
struct Licenses {
    allow: BTreeSet<String>,
    exceptions: Vec<Exception>,
}

#[derive(Deserialize)]
struct Exception {
    #[serde(rename = "crate")]
    name: String,
    allow: BTreeSet<String>,
}

#[derive(Deserialize)]
struct Bans {
    deny: Vec<Ban>,
}

#[derive(Deserialize)]
struct Ban {
    #[serde(rename = "crate")]
    name: String,
}

/// What Cargo says of the tree.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Clone, Deserialize)]
struct Package {
    name: String,
    version: String,
    license: Option<String>,
    source: Option<String>,
}

fn rules() -> Rules {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(".deny.toml");
    toml::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap()
}

/// The crates that are built for this machine, which were fetched when this test was.
fn packages() -> Vec<Package> {
    let rustc = Command::new("rustc").arg("-vV").output().unwrap();
    let version = String::from_utf8(rustc.stdout).unwrap();
    let host = version
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .unwrap();
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--offline",
            "--locked",
            "--format-version=1",
            "--filter-platform",
            host,
        ])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Metadata = serde_json::from_slice(&output.stdout).unwrap();
    metadata.packages
}

/// Whether an SPDX expression can be met with the licences that are allowed. `/` is how old manifests write `OR`.
fn is_met(expression: &str, allowed: &dyn Fn(&str) -> bool) -> bool {
    let spaced = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ");
    let mut tokens = spaced.split_whitespace().peekable();
    let met = any_of(&mut tokens, allowed);
    met && tokens.next().is_none()
}

type Tokens<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn any_of(tokens: &mut Tokens<'_>, allowed: &dyn Fn(&str) -> bool) -> bool {
    let mut met = all_of(tokens, allowed);
    while tokens.next_if_eq(&"OR").is_some() {
        // Both sides are read, whatever the first one says.
        met |= all_of(tokens, allowed);
    }
    met
}

fn all_of(tokens: &mut Tokens<'_>, allowed: &dyn Fn(&str) -> bool) -> bool {
    let mut met = one(tokens, allowed);
    while tokens.next_if_eq(&"AND").is_some() {
        met &= one(tokens, allowed);
    }
    met
}

fn one(tokens: &mut Tokens<'_>, allowed: &dyn Fn(&str) -> bool) -> bool {
    if tokens.next_if_eq(&"(").is_some() {
        let met = any_of(tokens, allowed);
        return tokens.next_if_eq(&")").is_some() && met;
    }
    let Some(license) = tokens.next() else {
        return false;
    };
    if tokens.next_if_eq(&"WITH").is_some() {
        let exception = tokens.next().unwrap_or_default();
        return allowed(&format!("{license} WITH {exception}"));
    }
    allowed(license)
}

fn license_problem(package: &Package, rules: &Rules) -> Option<String> {
    let allowed = |license: &str| {
        rules.licenses.allow.contains(license)
            || rules
                .licenses
                .exceptions
                .iter()
                .any(|exception| exception.name == package.name && exception.allow.contains(license))
    };
    let expression = package.license.as_deref().unwrap_or_default();
    (!is_met(expression, &allowed))
        .then(|| format!("{} {}: licence \"{expression}\"", package.name, package.version))
}

fn source_problem(package: &Package) -> Option<String> {
    let source = package.source.as_deref();
    source
        .is_some_and(|source| source != CRATES_IO)
        .then(|| format!("{} {}: from {source:?}", package.name, package.version))
}

#[test]
fn every_crate_has_a_licence_that_is_allowed() {
    let rules = rules();
    let packages = packages();
    assert!(packages.len() > 50, "{} crates", packages.len());
    let problems: Vec<String> = packages
        .iter()
        .filter_map(|package| license_problem(package, &rules))
        .collect();
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

#[test]
fn every_crate_comes_from_crates_io() {
    let problems: Vec<String> = packages().iter().filter_map(source_problem).collect();
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

#[test]
fn no_banned_crate_is_in_the_tree() {
    let banned = rules().bans.deny;
    assert!(banned.iter().any(|ban| ban.name == "hyper"));
    let found: Vec<String> = packages()
        .into_iter()
        .map(|package| package.name)
        .filter(|name| banned.iter().any(|ban| ban.name == *name))
        .collect();
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn the_rules_can_fail() {
    let allowed = |license: &str| ["MIT", "Zlib", "Unicode-3.0"].contains(&license);
    for (expression, met) in [
        ("MIT", true),
        ("GPL-3.0", false),
        ("MIT OR GPL-3.0", true),
        ("GPL-3.0/MIT", true),
        ("MIT AND GPL-3.0", false),
        ("(GPL-3.0 OR MIT) AND Unicode-3.0", true),
        ("(GPL-3.0 OR MIT) AND Unlicense", false),
        ("GPL-3.0 WITH Classpath-exception-2.0 OR Zlib", true),
        ("MIT WITH nothing", false),
        ("", false),
        ("MIT MIT", false),
        ("(MIT", false),
    ] {
        assert_eq!(is_met(expression, &allowed), met, "{expression}");
    }
    let package = Package {
        name: "x".to_owned(),
        version: "1.0.0".to_owned(),
        license: None,
        source: Some("git+https://example.org/x".to_owned()),
    };
    assert!(license_problem(&package, &rules()).is_some());
    assert!(source_problem(&package).is_some());
    let of = |name: &str| Package {
        name: name.to_owned(),
        license: Some("MPL-2.0".to_owned()),
        source: Some(CRATES_IO.to_owned()),
        ..package.clone()
    };
    // An exception is one crate's.
    assert!(license_problem(&of("option-ext"), &rules()).is_none());
    assert!(license_problem(&of("x"), &rules()).is_some());
    assert!(source_problem(&of("x")).is_none());
}

/// A program that only reads the contract's objects is not made to build a runtime; one that asks for the client gets it.
#[test]
fn the_contract_alone_needs_no_runtime() {
    let crates = |features: &[&str]| {
        let output = Command::new(env!("CARGO"))
            .args([
                "tree",
                "--offline",
                "--package",
                "bridge-protocol",
                "--edges",
                "no-dev",
                "--prefix",
                "none",
            ])
            .args(features)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let listed = String::from_utf8(output.stdout).unwrap();
        let names = listed.lines().filter_map(|line| line.split(' ').next());
        names.map(str::to_owned).collect::<BTreeSet<_>>()
    };
    let plain = crates(&[]);
    assert!(
        plain.contains("bridge-protocol") && plain.contains("serde_json"),
        "{plain:?}"
    );
    for name in ["tokio", "jsonrpsee", "mio"] {
        assert!(!plain.contains(name), "{name} is among {plain:?}");
    }
    let client = crates(&["--features", "client"]);
    assert!(
        client.contains("tokio") && !client.contains("jsonrpsee-server"),
        "{client:?}"
    );
}
