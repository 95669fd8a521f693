use super::*;

/// What git writes of a repository at `folder`, as far as it is read.
fn repository(folder: &Path) {
    for inside in ["objects", "refs", "worktrees"] {
        fs::create_dir_all(folder.join(inside)).expect("a folder");
    }
    fs::write(folder.join("HEAD"), "ref: refs/heads/main\n").expect("a file");
}

/// What git writes of a worktree at `folder`, which it names by `named`.
fn add(repository: &Path, folder: &Path, named: &str) {
    let name = folder.file_name().expect("a name");
    let noted = repository.join("worktrees").join(name);
    fs::create_dir_all(&noted).expect("a folder");
    fs::create_dir_all(folder).expect("a folder");
    for (file, text) in [
        ("HEAD", "ref: refs/heads/x"),
        ("commondir", "../.."),
        ("gitdir", named),
    ] {
        fs::write(noted.join(file), format!("{text}\n")).expect("a file");
    }
    let leads = format!("gitdir: {}\n", noted.display());
    fs::write(folder.join(".git"), leads).expect("a file");
}

fn base() -> (tempfile::TempDir, PathBuf) {
    let base = tempfile::tempdir().expect("a folder");
    let path = base.path().canonicalize().expect("a path");
    (base, path)
}

/// A repository with the worktrees `a` and `b` beside its main one, which is `main`.
pub(in crate::transcript) fn with_two() -> (tempfile::TempDir, PathBuf) {
    let (held, base) = base();
    repository(&base.join("main/.git"));
    for name in ["b", "a"] {
        let folder = base.join(name);
        add(
            &base.join("main/.git"),
            &folder,
            &format!("{}/.git", folder.display()),
        );
    }
    (held, base)
}

#[test]
fn the_worktree_of_the_cwd_comes_first_and_then_the_others_by_name() {
    let (_held, base) = with_two();
    let [main, a, b] = ["main", "a", "b"].map(|name| base.join(name));
    for (cwd, expected) in [
        (&main, [&main, &a, &b]),
        (&a, [&a, &b, &main]),
        (&b, [&b, &a, &main]),
    ] {
        for cwd in [cwd.clone(), cwd.join("further/in")] {
            assert_eq!(worktrees(&cwd), expected.map(PathBuf::clone), "{}", cwd.display());
        }
    }
    assert_eq!(worktrees(&base), [] as [PathBuf; 0]);
}

/// As one stays noted until somebody runs `git worktree prune`.
#[test]
fn a_worktree_that_is_gone_counts() {
    let (_held, base) = with_two();
    fs::remove_dir_all(base.join("a")).expect("a folder");
    assert_eq!(
        worktrees(&base.join("b")),
        ["b", "a", "main"].map(|name| base.join(name))
    );
}

#[test]
fn of_worktrees_within_each_other_the_outermost_counts_as_the_cwds() {
    let (_held, base) = with_two();
    let within = base.join("main/nested");
    add(
        &base.join("main/.git"),
        &within,
        &format!("{}/.git", within.display()),
    );
    let expected = ["main", "a", "b", "main/nested"].map(|name| base.join(name));
    assert_eq!(worktrees(&within), expected);
}

#[test]
fn a_repository_within_another_is_one_of_its_own() {
    let (_held, base) = with_two();
    let within = base.join("main/other");
    repository(&within.join(".git"));
    assert_eq!(worktrees(&within), [within]);
}

#[test]
fn paths_that_are_relative_are_meant_from_where_they_stand() {
    let (_held, base) = base();
    // A repository that is nowhere checked out by itself.
    let common = base.join(".bare");
    repository(&common);
    fs::write(base.join(".git"), "gitdir: ./.bare\n").expect("a file");
    let folder = base.join("x");
    add(&common, &folder, "../../../x/.git");
    fs::write(folder.join(".git"), "gitdir: ../.bare/worktrees/x\n").expect("a file");
    assert_eq!(worktrees(&folder), [folder.clone(), common.clone()]);
    assert_eq!(worktrees(&base), [common, folder]);
}

#[test]
fn what_is_no_repository_has_no_worktrees() {
    let (_held, base) = with_two();
    // What is called so and is none is passed over; where a file leads nowhere git gives up.
    let within = base.join("main/deep");
    fs::create_dir_all(within.join(".git")).expect("a folder");
    assert_eq!(worktrees(&within).len(), 3);
    fs::remove_dir(within.join(".git")).expect("a folder");
    for text in ["gitdir: /nowhere\n", "elsewhere\n", ""] {
        fs::write(within.join(".git"), text).expect("a file");
        assert_eq!(worktrees(&within), [] as [PathBuf; 0], "{text:?}");
    }
}

/// As the Node beside the agent sorts them with `localeCompare`.
#[test]
fn names_are_ordered_as_the_agent_orders_them() {
    let sorted = [
        "/w b", "/w_1", "/w-b", "/w-B", "/w.1", "/w/1", "/w#", "/w+", "/w~", "/w0", "/wa", "/wA", "/wa b",
        "/wab", "/wB", "/wc", "/wä",
    ];
    let mut paths = sorted.map(PathBuf::from);
    paths.reverse();
    paths.sort_by_cached_key(|path| by_name(path));
    assert_eq!(paths, sorted.map(PathBuf::from));
}
