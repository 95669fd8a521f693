//! The licences, sources and names of all dependencies, compared with `.deny.toml`. Advisories need `cargo
//! deny check`, which reads them from the network.

use std::fs;
use std::process::Command;

use serde_json::Value;
use toml::Table;

use super::root;

const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

fn rules() -> Table {
    toml::from_str(&fs::read_to_string(root().join(".deny.toml")).unwrap()).unwrap()
}

/// The strings under a key of each of these tables, or the array of strings itself.
fn names(value: &toml::Value, key: &str) -> Vec<String> {
    let entries = value.as_array().unwrap().iter();
    let names = entries.map(|entry| entry.get(key).unwrap_or(entry).as_str().unwrap().to_owned());
    names.collect()
}

/// Whether one of the alternatives of an SPDX expression needs only these licences. `A/B` is an old form of
/// `A OR B`.
fn is_allowed(expression: &str, allowed: &[String]) -> bool {
    let spaced = expression
        .replace('/', " OR ")
        .replace('(', "( ")
        .replace(')', " )");
    let mut words = spaced.split_whitespace().peekable();
    let is_met = any_of(&mut words, allowed);
    is_met && words.next().is_none()
}

type Words<'a, 'b> = &'a mut std::iter::Peekable<std::str::SplitWhitespace<'b>>;

fn any_of(words: Words<'_, '_>, allowed: &[String]) -> bool {
    let mut is_met = all_of(words, allowed);
    while words.next_if_eq(&"OR").is_some() {
        is_met |= all_of(words, allowed);
    }
    is_met
}

fn all_of(words: Words<'_, '_>, allowed: &[String]) -> bool {
    let mut is_met = one(words, allowed);
    while words.next_if_eq(&"AND").is_some() {
        is_met &= one(words, allowed);
    }
    is_met
}

fn one(words: Words<'_, '_>, allowed: &[String]) -> bool {
    if words.next_if_eq(&"(").is_some() {
        let is_met = any_of(words, allowed);
        return words.next() == Some(")") && is_met;
    }
    let mut licence = words.next().unwrap_or_default().to_owned();
    if words.next_if_eq(&"WITH").is_some() {
        licence = format!("{licence} WITH {}", words.next().unwrap_or_default());
    }
    allowed.contains(&licence)
}

/// What is wrong with one package of `cargo metadata`.
fn licence_finding(package: &Value, rules: &toml::Value) -> Option<String> {
    package["source"].as_str()?;
    let name = package["name"].as_str().unwrap();
    let mut allowed = names(&rules["allow"], "");
    let exceptions = rules["exceptions"].as_array().unwrap().iter();
    for exception in exceptions.filter(|exception| exception["crate"].as_str() == Some(name)) {
        allowed.extend(names(&exception["allow"], ""));
    }
    let licence = package["license"].as_str().unwrap_or("none");
    (!is_allowed(licence, &allowed)).then(|| format!("{name}: its licence {licence} is not accepted"))
}

/// What is wrong with the packages of `Cargo.lock`, on all platforms.
fn lock_findings(lock: &Table, denied: &[String]) -> Vec<String> {
    let mut found = Vec::new();
    for package in lock["package"].as_array().unwrap() {
        let name = package["name"].as_str().unwrap();
        let source = package.get("source").and_then(toml::Value::as_str);
        if source.is_some_and(|source| source != REGISTRY) {
            found.push(format!("{name}: its source {} is not accepted", source.unwrap()));
        }
        if denied.iter().any(|denied| denied == name) {
            found.push(format!("{name}: .deny.toml bans it"));
        }
    }
    found
}

/// Those of this platform: cargo has no others on a machine without network.
#[test]
fn licences_of_dependencies_are_accepted() {
    let version = Command::new("rustc").arg("-vV").output().unwrap();
    let version = String::from_utf8(version.stdout).unwrap();
    let host = version
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .unwrap();
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--offline",
            "--locked",
            "--all-features",
            "--format-version",
            "1",
        ])
        .args(["--filter-platform", host])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let (packages, rules) = (metadata["packages"].as_array().unwrap(), rules());
    let findings: Vec<_> = packages
        .iter()
        .filter_map(|package| licence_finding(package, &rules["licenses"]))
        .collect();
    assert!(
        packages.len() > 20 && findings.is_empty(),
        "\n{}\n",
        findings.join("\n")
    );
}

#[test]
fn dependencies_come_from_the_registry_and_none_is_banned() {
    let lock = toml::from_str(&fs::read_to_string(root().join("Cargo.lock")).unwrap()).unwrap();
    let findings = lock_findings(&lock, &names(&rules()["bans"]["deny"], "crate"));
    assert!(findings.is_empty(), "\n{}\n", findings.join("\n"));
}

#[test]
fn the_rules_on_dependencies_find_what_they_look_for() {
    let allowed = ["MIT".to_owned(), "Zlib".to_owned()];
    let table = [
        ("MIT", true),
        ("GPL-3.0", false),
        ("GPL-3.0 OR MIT", true),
        ("GPL-3.0/MIT", true),
        ("MIT AND Zlib", true),
        ("(MIT OR GPL-3.0) AND GPL-3.0", false),
        ("MIT WITH an-exception", false),
        ("MIT Zlib", false),
        ("(MIT", false),
        ("none", false),
    ];
    for (expression, expected) in table {
        assert_eq!(is_allowed(expression, &allowed), expected, "{expression}");
    }
    let lock = "[[package]]\nname = \"hyper\"\nsource = \"git+https://example.com/hyper\"\n";
    assert_eq!(
        lock_findings(&toml::from_str(lock).unwrap(), &["hyper".to_owned()]).len(),
        2
    );
}
